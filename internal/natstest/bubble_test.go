package natstest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestRestartKeepsFiles(t *testing.T) {
	Bubble(t, func(t *testing.T, env *Env) {
		c := env.Connect("a")
		for _, s := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
			kv, err := c.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: s.String(), Storage: s})
			require.NoError(t, err)
			require.True(t, put(t, kv, s.String()))
		}
		env.Restart()
		env.WaitFor(time.Second, "reconnection", reconnects(1, c))
		kv, err := c.JS().KeyValue(t.Context(), jetstream.FileStorage.String())
		require.NoError(t, err)
		require.Equal(t, jetstream.FileStorage.String(), get(t, kv))
		_, err = c.JS().KeyValue(t.Context(), jetstream.MemoryStorage.String())
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
	})
}

// A server that shuts down with pulls under way sleeps with a lock held, for which requests for new consumers wait. Without traffic held before
// the shutdown, virtual time stands still here.
func TestRestartWithPullsUnderWay(t *testing.T) {
	const clients, pulls, restarts = 8, 16, 4
	Bubble(t, func(t *testing.T, env *Env) {
		_, err := env.Connect("creator").JS().CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var made atomic.Int64
		for i := range clients {
			js := env.Connect(fmt.Sprint(i)).JS()
			for range pulls {
				all.Go(func() {
					for ctx.Err() == nil {
						pull(ctx, js, &made)
					}
				})
			}
		}
		for range restarts {
			before := made.Load()
			env.WaitFor(time.Minute, "consumers are made again", func() bool { return made.Load() >= before+2*clients*pulls })
			env.Restart()
		}
		cancel()
		all.Wait()
		t.Logf("%d consumers over %d restarts", made.Load(), restarts)
	})
}

// pull makes a consumer and pulls from it for a moment, in vain.
func pull(ctx context.Context, js jetstream.JetStream, made *atomic.Int64) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	c, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{MemoryStorage: true, InactiveThreshold: time.Second})
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	made.Add(1)
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return
	}
	for range batch.Messages() {
	}
}

func TestStoppedServer(t *testing.T) {
	Bubble(t, func(t *testing.T, env *Env) {
		c := env.Connect("a")
		env.Server.Stop()
		_, err := env.Server.Connect("b")
		require.ErrorContains(t, err, ErrStopped.Error())
		late := env.Connect("c", nats.RetryOnFailedConnect(true))
		time.Sleep(time.Hour)
		require.NoError(t, env.Server.Start())
		for _, c := range []*Client{c, late} {
			env.WaitFor(time.Second, "connection", c.Conn().IsConnected)
		}
	})
}

// The expiry of a key reaches a watcher in virtual time, half an hour later.
func TestExpiryMarker(t *testing.T) {
	Bubble(t, func(t *testing.T, env *Env) {
		kv, err := env.Connect("a").JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: "b", TTL: 30 * time.Minute, LimitMarkerTTL: time.Minute, Storage: jetstream.MemoryStorage,
		})
		require.NoError(t, err)
		w, err := kv.Watch(t.Context(), "k", jetstream.UpdatesOnly())
		require.NoError(t, err)
		require.True(t, put(t, kv, "1"))
		start := time.Now()
		require.Equal(t, jetstream.KeyValuePut, (<-w.Updates()).Operation())
		require.Equal(t, jetstream.KeyValuePurge, (<-w.Updates()).Operation())
		require.InDelta(t, 30*time.Minute, time.Since(start), float64(time.Second))
		require.NoError(t, w.Stop())
	})
}

func TestServerOptions(t *testing.T) {
	noJS := WithServerOptions(func(o *server.Options) {
		o.JetStream = false
		o.MaxPayload = 100
		o.Users = []*server.User{{Username: "u", Password: "p"}}
	})
	Bubble(t, func(t *testing.T, env *Env) {
		_, err := env.Server.Connect("a")
		require.ErrorIs(t, err, nats.ErrAuthorization)
		c := env.Connect("a", nats.UserInfo("u", "p"))
		require.ErrorIs(t, c.Conn().Publish("s", make([]byte, 101)), nats.ErrMaxPayload)
		_, err = c.JS().AccountInfo(t.Context())
		require.ErrorIs(t, err, jetstream.ErrJetStreamNotEnabled)
	}, noJS)
}

func TestLeftGoroutinesAreFound(t *testing.T) {
	Bubble(t, func(t *testing.T, _ *Env) {
		left := func() string {
			synctest.Wait()
			return join(goroutines(bubbleID()))
		}
		release := make(chan struct{})
		require.NotContains(t, left(), t.Name())
		go func() { <-release }()
		require.Contains(t, left(), t.Name())
		close(release)
		require.NotContains(t, left(), t.Name())
	})
}

// The same scenario gives the same events, to the nanosecond. 8 clients take turns by CAS, under cuts, holds and delays.
func TestScenarioIsReproducible(t *testing.T) {
	first := scenario(t)
	t.Logf("%d events, hash %x", len(first), hash(first))
	again := scenario(t)
	require.True(t, hash(first) == hash(again), difference(first, again))
}

func scenario(t *testing.T) (events []string) {
	Bubble(t, func(t *testing.T, env *Env) {
		var mu sync.Mutex
		log := func(name, format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf("%d %s %s", time.Now().UnixNano(), name, fmt.Sprintf(format, args...)))
		}
		_, err := env.Connect("creator").JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: "b", TTL: 5 * time.Second, LimitMarkerTTL: time.Minute, Storage: jetstream.MemoryStorage,
		})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 8 {
			c := env.Connect(fmt.Sprintf("w%d", i))
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() { work(t, c, rnd, log) })
		}
		wg.Wait()
	})
	slices.Sort(events) // one client's goroutines may run in any order within one instant
	return events
}

func work(t *testing.T, c *Client, rnd *rand.Rand, log func(name, format string, args ...any)) {
	kv := bucket(t, c)
	sub, err := c.Conn().Subscribe("$KV.b.k", func(m *nats.Msg) { log(c.Name, "heard %q", m.Data) })
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := range 60 {
		time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		var rev uint64
		e, err := kv.Get(t.Context(), "k")
		if err == nil {
			rev = e.Revision()
		}
		time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
		rev, err = kv.Update(t.Context(), "k", fmt.Appendf(nil, "%s/%d", c.Name, i), rev)
		log(c.Name, "update %d %v", rev, err != nil)
		time.Sleep(time.Nanosecond) // let this instant end, in which messages may be arriving too
		switch rnd.IntN(8) {
		case 0:
			c.Gate().Cut()
		case 1:
			c.Gate().Hold(FromServer)
		case 2:
			c.Gate().Delay(time.Duration(rnd.IntN(100)) * time.Millisecond)
		case 3:
			c.Gate().Drop()
		case 4, 5:
			c.Gate().Heal()
		}
	}
}

func hash(events []string) [32]byte { return sha256.Sum256([]byte(strings.Join(events, "\n"))) }

// difference shows two logs around the first event that is not the same.
func difference(a, b []string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(s []string) string { return strings.Join(s[min(max(0, i-5), len(s)):min(i+5, len(s))], "\n") }
	return fmt.Sprintf("event %d:\n%s\n\n%s", i, around(a), around(b))
}

func TestSingle(t *testing.T) {
	env := Single(t, WithTCP())
	c := env.Connect("a")
	require.Equal(t, time.Minute, c.JS().Options().DefaultTimeout)
	require.Equal(t, connectTimeout, c.Conn().Opts.Timeout)
	kv, err := c.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	require.NoError(t, err)
	_, err = kv.PutString(t.Context(), "k", "1")
	require.NoError(t, err)
	url := env.Server.URL()
	env.Restart()
	require.Equal(t, url, env.Server.URL())
	nc, err := nats.Connect(url, nats.Timeout(connectTimeout))
	require.NoError(t, err)
	defer nc.Close()
	env.WaitFor(30*time.Second, "the value over the restart", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // who has not noticed the restart yet asks in vain
		defer cancel()
		e, err := kv.Get(ctx, "k")
		return err == nil && string(e.Value()) == "1"
	})
}

func BenchmarkSinglePut(b *testing.B) {
	env := Single(b)
	kv, err := env.Connect("a").JS().CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "b", Storage: jetstream.MemoryStorage})
	require.NoError(b, err)
	for b.Loop() {
		if _, err := kv.Put(b.Context(), "k", nil); err != nil {
			b.Fatal(err)
		}
	}
}

func bucket(t *testing.T, c *Client) jetstream.KeyValue {
	t.Helper()
	kv, err := c.JS().KeyValue(t.Context(), "b")
	require.NoError(t, err)
	return kv
}
