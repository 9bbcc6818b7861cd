package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newMsg(subject, epoch string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Header.Set(fence.HeaderEpoch, epoch)
	return m
}

func epochOf(t *testing.T, m *jetstream.RawStreamMsg) int64 {
	t.Helper()
	epoch, err := strconv.ParseInt(m.Header.Get(fence.HeaderEpoch), 10, 64)
	require.NoError(t, err)
	return epoch
}

// The write is stored, its answer gets lost: the write finds out that it was stored, and does not store it twice.
func TestKVLostAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*natstest.Gate)
	}{
		{"held", func(g *natstest.Gate) { g.Hold(natstest.FromServer) }},
		{"lost with the connection", func(g *natstest.Gate) { g.Lose(natstest.FromServer) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				s := newSink(t, env.Connect("a"))
				gate := s.client.Gate()
				_, err := s.Put(t.Context(), "p", []byte("before"), 1)
				require.NoError(t, err)
				gate.Delay(10 * time.Millisecond)
				go func() {
					time.Sleep(25 * time.Millisecond) // the read was answered, the write is under way
					c.fault(gate)
					time.Sleep(3 * time.Second)
					gate.Heal()
				}()
				rev, err := s.Put(t.Context(), "p", []byte("v"), 1)
				require.NoError(t, err)
				require.EqualValues(t, 2, rev)
				_, values := history(t, s, "p")
				require.Equal(t, []string{"before", "v"}, values)
			})
		})
	}
}

// The write gets lost on its way: it is sent again.
func TestKVLostWrite(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s := newSink(t, env.Connect("a"))
		s.client.Gate().Delay(10 * time.Millisecond)
		go func() {
			time.Sleep(15 * time.Millisecond)
			s.client.Gate().Lose(natstest.ToServer)
			time.Sleep(3 * time.Second)
			s.client.Gate().Heal()
		}()
		_, err := s.Put(t.Context(), "p", []byte("v"), 1)
		require.NoError(t, err)
		_, values := history(t, s, "p")
		require.Equal(t, []string{"v"}, values)
	})
}

// The look before the write gets no answer, as while three servers elect a leader: it is repeated.
func TestKVLostRead(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s := newSink(t, env.Connect("a"))
		s.client.Gate().Lose(natstest.ToServer)
		go func() {
			time.Sleep(5 * time.Second)
			s.client.Gate().Heal()
		}()
		_, err := s.Put(t.Context(), "p", []byte("v"), 1)
		require.NoError(t, err)
		_, values := history(t, s, "p")
		require.Equal(t, []string{"v"}, values)
	})
}

// The write is on its way for seconds, and a newer owner claims the key meanwhile: it arrives and changes nothing.
func TestKVWriteThatArrivesLate(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		older, newer := newSink(t, env.Connect("older")), newSink(t, env.Connect("newer"))
		_, err := older.Put(t.Context(), "p", []byte("before"), 1)
		require.NoError(t, err)
		older.client.Gate().Delay(10 * time.Millisecond)
		result := make(chan error, 1)
		go func() {
			_, err := older.Put(t.Context(), "p", []byte("late"), 1)
			result <- err
		}()
		time.Sleep(25 * time.Millisecond) // it has read, compared, and written; what it wrote has not arrived
		older.client.Gate().Hold(natstest.ToServer)
		time.Sleep(time.Second)
		e, err := newer.Claim(t.Context(), "p", 2)
		require.NoError(t, err)
		require.Equal(t, "before", string(e.Value))
		older.client.Gate().Heal()
		require.ErrorIs(t, <-result, fence.ErrStale)
		epochs, values := history(t, newer, "p")
		require.Equal(t, []int64{1, 2}, epochs)
		require.Equal(t, []string{"before", "before"}, values)
	})
}

// What cannot be found out is said to be unknown, never guessed: the write landed, but a newer owner has written over it.
func TestKVOutcomeThatNobodyKnows(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		older, newer := newSink(t, env.Connect("older")), newSink(t, env.Connect("newer"))
		older.client.Gate().Delay(10 * time.Millisecond)
		result := make(chan error, 1)
		go func() {
			_, err := older.Put(t.Context(), "p", []byte("landed"), 1)
			result <- err
		}()
		time.Sleep(25 * time.Millisecond)
		older.client.Gate().Lose(natstest.FromServer)
		time.Sleep(2500 * time.Millisecond) // longer than one attempt waits
		e, err := newer.Claim(t.Context(), "p", 2)
		require.NoError(t, err)
		require.Equal(t, "landed", string(e.Value))
		older.client.Gate().Heal()
		err = <-result
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorIs(t, err, types.ErrOutcomeUnknown)
	})
}

func TestKVEndsWithItsContext(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s := newSink(t, env.Connect("a"))
		gate := s.client.Gate()
		gate.Hold(natstest.ToServer)
		began := time.Now()
		_, err := s.Put(within(t, time.Second), "p", nil, 1)
		require.Error(t, err)
		require.NotErrorIs(t, err, types.ErrOutcomeUnknown, "not even the read was answered: nothing was sent")
		require.Equal(t, time.Second, time.Since(began))
		gate.Heal()

		gate.Delay(10 * time.Millisecond)
		go func() {
			time.Sleep(25 * time.Millisecond)
			gate.Hold(natstest.FromServer)
		}()
		_, err = s.Put(within(t, time.Second), "p", nil, 1)
		require.ErrorIs(t, err, types.ErrOutcomeUnknown)

		began = time.Now()
		_, err = s.Put(t.Context(), "p", nil, 1)
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(began), 10*time.Second, "there is a limit without a deadline too")
		gate.Heal()
	})
}

func TestKVGivesUpOnAClosedConnection(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s := newSink(t, env.Connect("a"))
		s.client.Conn().Close()
		_, err := s.Put(t.Context(), "p", nil, 1)
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
	})
}

// race lets owners with growing epochs write at the same time, each as often as it may, and looks whether the epochs stored ever
// went down.
func race(t *testing.T, s sink, open func(name string) *fence.KV) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	stored, refused, unknown := 0, 0, 0
	for i := range 6 {
		kv := open(fmt.Sprintf("w%d", i))
		all.Go(func() {
			for n := range 8 {
				_, err := kv.Put(within(t, 2*time.Minute), "p", fmt.Appendf(nil, "%d-%d", i, n), int64(i+1))
				for errors.Is(err, nats.ErrNoResponders) { // three servers elect a leader for the stream: nothing was written
					_, err = kv.Put(within(t, 2*time.Minute), "p", fmt.Appendf(nil, "%d-%d", i, n), int64(i+1))
				}
				mu.Lock()
				switch {
				case err == nil:
					stored++
				case errors.Is(err, types.ErrOutcomeUnknown): // the answer was lost, and somebody has written since
					unknown++
				default:
					assert.ErrorIs(t, err, fence.ErrStale)
					refused++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	epochs, values := history(t, s, "p")
	require.True(t, slices.IsSorted(epochs), "%v", epochs)
	slices.Sort(values)
	require.Equal(t, len(values), len(slices.Compact(values)), "nothing twice")
	require.GreaterOrEqual(t, len(values), stored, "what was acknowledged is stored")
	require.LessOrEqual(t, len(values), stored+unknown, "and nothing else")
	t.Logf("%d stored, %d refused, %d unknown: %v", stored, refused, unknown, epochs)
}

func TestKVRace(t *testing.T) {
	env := natstest.Single(t)
	race(t, newSink(t, env.Connect("a")), func(name string) *fence.KV {
		kv, err := fence.OpenKV(within(t, time.Minute), env.Connect(name).JS(), "sink")
		require.NoError(t, err)
		return kv
	})
}

func TestKVRaceOnThreeServers(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	client := c.Connect("a")
	var s sink
	c.Repeat(func(ctx context.Context) (err error) {
		s, err = makeSink(ctx, client, jetstream.KeyValueConfig{Replicas: 3})
		return err
	})
	c.StreamLeader("KV_sink")
	n := 0
	race(t, s, func(name string) (kv *fence.KV) {
		n++
		js := c.Connect(name, n%3).JS()
		c.Repeat(func(ctx context.Context) (err error) {
			kv, err = fence.OpenKV(ctx, js, "sink")
			return err
		})
		return kv
	})
}
