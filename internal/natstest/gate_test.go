package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// gated runs f in a bubble with two clients of one bucket in memory, of which the first is to have network trouble.
func gated(t *testing.T, f func(t *testing.T, env *Env, a *Client, kvA, kvB jetstream.KeyValue)) {
	t.Helper()
	Bubble(t, func(t *testing.T, env *Env) {
		a, b := env.Connect("a"), env.Connect("b")
		_, err := a.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
		f(t, env, a, bucket(t, a), bucket(t, b))
	})
}

func get(t *testing.T, kv jetstream.KeyValue) string {
	t.Helper()
	e, err := kv.Get(t.Context(), "k")
	if err != nil {
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound)
		return ""
	}
	return string(e.Value())
}

func reconnects(n uint64, c *Client) func() bool {
	return func() bool { return c.Conn().Stats().Reconnects == n }
}

func TestGateDelayIsExact(t *testing.T) {
	gated(t, func(t *testing.T, _ *Env, a *Client, _, _ jetstream.KeyValue) {
		for _, d := range []time.Duration{0, time.Millisecond, 300 * time.Millisecond, 0} {
			a.Gate().Delay(d)
			rtt, err := a.Conn().RTT()
			require.NoError(t, err)
			require.Equal(t, 2*(d+skewOf(0)), rtt)
		}
	})
}

func TestGateCut(t *testing.T) {
	gated(t, func(t *testing.T, env *Env, a *Client, kvA, kvB jetstream.KeyValue) {
		a.Gate().Cut()
		require.False(t, put(t, kvA, "lost"))
		require.False(t, a.Conn().IsConnected())
		_, err := a.Gate().InProcessConn()
		require.ErrorIs(t, err, ErrCut)
		require.True(t, put(t, kvB, "1"), "others are not affected")

		a.Gate().Heal()
		env.WaitFor(reconnectWait+10*time.Millisecond, "reconnection", reconnects(1, a))
		require.True(t, put(t, kvA, "2"))
		require.Equal(t, "2", get(t, kvB))

		a.Gate().Drop()
		env.WaitFor(reconnectWait+10*time.Millisecond, "reconnection", reconnects(2, a))
		require.True(t, put(t, kvA, "3"))
	})
}

// A request whose reply is held was carried out. Nobody notices anything but the silence.
func TestGateHoldsReplies(t *testing.T) {
	gated(t, func(t *testing.T, _ *Env, a *Client, kvA, kvB jetstream.KeyValue) {
		a.Gate().Hold(FromServer)
		require.False(t, put(t, kvA, "1"))
		require.Equal(t, "1", get(t, kvB))
		require.True(t, a.Conn().IsConnected())

		time.AfterFunc(time.Second, a.Gate().Heal)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := kvA.Put(ctx, "k", []byte("2"))
		require.NoError(t, err, "the reply was held, and delivered in the end")
		require.Zero(t, a.Conn().Stats().Reconnects)
	})
}

// A request that is held is carried out much later, when its sender has long given up.
func TestGateHoldsRequests(t *testing.T) {
	gated(t, func(t *testing.T, _ *Env, a *Client, kvA, kvB jetstream.KeyValue) {
		a.Gate().Hold(ToServer)
		require.False(t, put(t, kvA, "late"))
		require.True(t, put(t, kvB, "1"))
		time.Sleep(time.Minute)
		require.Equal(t, "1", get(t, kvB))
		a.Gate().Heal()
		time.Sleep(time.Millisecond)
		require.Equal(t, "late", get(t, kvB))
	})
}

func TestGateLosesWhatItHeld(t *testing.T) {
	gated(t, func(t *testing.T, env *Env, a *Client, kvA, kvB jetstream.KeyValue) {
		a.Gate().Lose(Both)
		require.False(t, put(t, kvA, "lost"))
		require.True(t, a.Conn().IsConnected())
		a.Gate().Heal()
		env.WaitFor(reconnectWait+10*time.Millisecond, "reconnection", reconnects(1, a))
		require.Equal(t, "", get(t, kvB))
		require.True(t, put(t, kvA, "1"))
	})
}

// A dead connection is noticed by nats.go's own pings, and new ones hang until their timeout.
func TestGateBlackHole(t *testing.T) {
	gated(t, func(t *testing.T, env *Env, a *Client, kvA, _ jetstream.KeyValue) {
		a.Gate().Hold(Both)
		env.WaitFor(10*time.Minute, "the client to notice", func() bool { return !a.Conn().IsConnected() })
		time.Sleep(time.Minute)
		require.False(t, a.Conn().IsConnected())
		a.Gate().Heal()
		env.WaitFor(5*time.Second, "reconnection", reconnects(1, a))
		require.True(t, put(t, kvA, "1"))
	})
}

func TestClientKill(t *testing.T) {
	gated(t, func(t *testing.T, env *Env, a *Client, kvA, kvB jetstream.KeyValue) {
		a.Gate().Delay(time.Second)
		require.NoError(t, a.Conn().Publish("$KV.b.k", []byte("under way")))
		a.Kill()
		a.Gate().Heal()
		_, err := a.Gate().InProcessConn()
		require.ErrorIs(t, err, ErrCut)
		_, err = kvA.Get(t.Context(), "k")
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		time.Sleep(time.Minute)
		require.Equal(t, "", get(t, kvB))
		require.Equal(t, 1, env.Server.Raw().NumClients())
	})
}

func TestMessageLen(t *testing.T) {
	for b, want := range map[string]int{
		"": 0, "PING": 0, "PING\r": 0, "PING\r\n": 6, "PING\r\nPING\r\n": 6,
		"PUB s 3\r\n": 0, "PUB s 3\r\nabc\r": 0, "PUB s 3\r\nabc\r\n": 14, "PUB s r 3\r\n\r\nc\r\nPONG": 16,
		"HPUB s r 12 13\r\nNATS/1.0\r\n\r\nx\r\n": 31, "PUB s 0\r\n\r\n": 11, "PUB s x\r\n": 9,
	} {
		require.Equal(t, want, messageLen([]byte(b)), "%q", b)
	}
}
