package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// errorLog takes down what OnError is told.
type errorLog struct {
	mu  sync.Mutex
	all []string
	err map[int]error // the last one by partition
}

func (l *errorLog) hooks() Option {
	l.err = map[int]error{}
	return WithHooks(Hooks{OnError: func(p int, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, fmt.Sprint(p, ": ", err))
		l.err[p] = err
	}})
}

func (l *errorLog) of(partition int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err[partition]
}

func (l *errorLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// block deletes the bucket of offsets and gives its subjects to somebody else, so that it cannot be made anew.
func (w *world) block(ctx context.Context) {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteKeyValue(ctx, DefaultOffsetsBucket))
	_, err := w.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "BLOCK", Subjects: []string{"$KV." + DefaultOffsetsBucket + ".>"}, MaxMsgSize: 1, Storage: jetstream.MemoryStorage,
	})
	require.NoError(w.t, err)
}

func (w *world) unblock(ctx context.Context) {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(ctx, "BLOCK"))
}

// A bucket of offsets that vanishes is made anew, and every Reader stores there what it knows: nothing goes back.
func TestOffsetsBucketIsMadeAnew(t *testing.T) {
	for name, busy := range map[string]bool{"noticed by an acknowledgement": true, "noticed by a look": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.ledger.unjudged = true // its records go with the bucket
				w.create()
				w.publish(10)
				var told errorLog
				a, b := w.join(told.hooks()), w.join()
				a.process()
				b.process()
				w.waitRead(10 * time.Second)
				time.Sleep(time.Second)
				ctx := w.ctx(time.Hour)
				require.NoError(t, w.js.DeleteKeyValue(ctx, DefaultOffsetsBucket))
				if busy {
					w.publish(1)
					w.waitRead(time.Second)
				}
				time.Sleep(offsetsLook + time.Second)
				for p := range w.parts {
					e, err := a.offsets.Load().Get(ctx, offsetKey("group", p))
					require.NoError(t, err)
					s, err := decodeOffset(e.Value)
					require.NoError(t, err)
					require.Positive(t, s.Sequence)
				}
				require.ErrorContains(t, told.of(whole), "was deleted and made anew")
				a.leave()
				w.publish(10)
				w.waitRead(10 * time.Second)
				require.Zero(t, w.ledger.again())
			})
		})
	}
}

// An Ack waits for a bucket that cannot be made anew, without noise, and succeeds when it can.
func TestOffsetsBucketStaysAway(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		var told errorLog
		a := w.join(told.hooks())
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		ms, err := a.Fetch(ctx, 80)
		require.NoError(t, err)
		w.block(ctx)
		acked := make(chan error, 1)
		go func() { acked <- a.Ack(ctx, ms...) }()
		time.Sleep(10 * time.Minute)
		require.Empty(t, acked)
		require.Less(t, told.count(), 25*(w.parts+1), "%v", told.all)
		w.unblock(ctx)
		began := time.Now()
		require.NoError(t, <-acked)
		require.Less(t, time.Since(began), 2*commitRetryLimit)
	})
}

// An offset that no owner can have written is named, with what to do about it; mended, the partition goes on.
func TestDamagedOffset(t *testing.T) {
	high, err := json.Marshal(Offset{Partition: 3, Sequence: 2, Epoch: 1 << 60, Worker: "nobody"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		value []byte
		is    error
	}{"no JSON": {[]byte("garbage"), types.ErrMalformed}, "an epoch to come": {high, ErrPartitionLost}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.ledger.Exempt(3)
				w.create()
				w.publish(10)
				ctx := w.ctx(time.Hour)
				store, err := kv.OpenStore(ctx, w.js, DefaultOffsetsBucket, time.Minute)
				require.NoError(t, err)
				rev, err := store.Put(ctx, offsetKey("group", 3), c.value, 0, 0)
				require.NoError(t, err)
				var told errorLog
				a := w.join(told.hooks())
				a.process()
				time.Sleep(time.Minute)
				require.Len(t, a.Assigned(), w.parts-1)
				require.ErrorIs(t, told.of(3), c.is)
				require.ErrorContains(t, told.of(3), `the key "group.3" of the bucket "parti-offsets" is damaged: delete it`)
				require.Less(t, told.count(), 15)
				_, err = store.Put(ctx, offsetKey("group", 3), []byte(`{"sequence":4}`), rev, 0) // as if its first message were processed
				require.NoError(t, err)
				w.env.WaitFor(time.Minute, "the rest is read", func() bool { return w.ledger.count() == 79 })
			})
		})
	}
}

// An error that stays is told again after growing waits; another one, or the same one after it was gone, at once.
func TestErrorsAreToldOnce(t *testing.T) {
	r := &Reader{told: map[topic]*told{}}
	now := time.Now()
	tell := func(text string, after time.Duration) bool {
		now = now.Add(after)
		return r.news(topic{1, "commit"}, text, now)
	}
	require.True(t, tell("a", 0))
	require.False(t, tell("a", 100*time.Millisecond))
	require.True(t, tell("b", 0))
	n := 0
	for range 36_000 {
		if tell("b", 100*time.Millisecond) {
			n++
		}
	}
	require.InDelta(t, 65, n, 3, "in an hour")
	require.True(t, tell("b", forgotten+time.Second))
	r.cured(1, "commit")
	require.True(t, tell("b", 0))
}
