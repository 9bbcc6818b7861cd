package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is acknowledged after it was given back makes room, and the room is used at once.
func TestAckOfWhatWasGivenBackMakesRoom(t *testing.T) {
	for name, above := range map[string]int{"a consumer each": 64, "shared": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a, ctx := w.owning(10, 4, WithBuffer(10, 1<<20), WithFetchWait(5*time.Second, 0), WithSharedAbove(above))
				ms, err := a.Fetch(ctx, 10)
				require.NoError(t, err)
				require.Len(t, ms, 10)
				a.Pause(4)
				none, err := a.Fetch(ctx, 10) // gives them back
				require.NoError(t, err)
				require.Empty(t, none)
				a.Resume(4)
				time.Sleep(time.Minute) // what was asked for has ended, and nothing more fits
				w.publish(10, 4)
				time.Sleep(1300 * time.Millisecond)
				require.NoError(t, a.Ack(ctx, ms...))
				began := time.Now()
				ms, err = a.Fetch(ctx, 10)
				require.NoError(t, err)
				require.NotEmpty(t, ms)
				t.Log(time.Since(began))
				require.Less(t, time.Since(began), 100*time.Millisecond)
			})
		})
	}
}

// What a partition that waits behind a full buffer did not get is reported when it is gone, and not when only what was stored before it is.
func TestNothingExpiredBeforeTheFirstThatDidNotFit(t *testing.T) {
	bubble(t, func(w *world) {
		w.small(1000)
		n := 0
		a := w.join(WithBuffer(10, 1<<20), WithHooks(Hooks{OnExpired: func(e *ExpiredError) { n++; t.Log(e) }}))
		w.waitOwned(10 * time.Second)
		stuck := make(chan struct{})
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 3 && string(m.Data) == "1" {
				<-stuck
			}
			return nil
		})
		w.publish(1)
		time.Sleep(5 * time.Second)
		w.publish(10, 3) // as many as fit
		w.publish(95, 4)
		w.publish(1, 3)
		w.publish(960, 4)
		s, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
		require.NoError(t, err)
		require.Less(t, s.CachedInfo().State.FirstSeq, uint64(8+10+95), "it has lost nothing")
		time.Sleep(5 * time.Second)
		close(stuck)
		w.waitRead(10 * time.Second)
		require.Zero(t, n)
	}, withOptions(WithSharedAbove(0)))
}

// A partition that joins the shared feed that follows the one it has left takes nothing of that one for its own.
func TestSharedFeedsDiffer(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(10, 0)
		a.process()
		w.waitRead(10 * time.Second)
		x, err := a.find(0)
		require.NoError(t, err)
		attached := func() uint32 {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.attach
		}
		before := attached()
		require.NoError(t, a.Seek(ctx, 0, Latest()))
		w.publish(1)
		w.waitRead(10 * time.Second)
		require.NotEqual(t, before, attached())
	}, withLayout(SubjectPerPartition("ORDERS", "orders", 1)), withOptions(WithSharedAbove(0)))
}

// Resume goes on with a message that is being repeated where that was.
func TestResumeForgetsNoAttempts(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(2, 4, WithRetry(Retry{3, time.Second, time.Second}), WithPoison(PoisonSkip))
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		go func() {
			for short.Err() == nil {
				a.Resume()
				time.Sleep(300 * time.Millisecond)
			}
		}()
		calls := map[string]int{}
		require.ErrorIs(t, a.Process(short, func(_ context.Context, m Message) error {
			if calls[string(m.Data)]++; string(m.Data) == "1" {
				return errors.New("not this one")
			}
			return nil
		}), context.DeadlineExceeded)
		require.Equal(t, map[string]int{"1": 3, "2": 1}, calls)
	})
}

// What is held in memory is bounded while a backlog is read, too, when the buffer is never empty.
func TestBufferDoesNotGrowWithTheBacklog(t *testing.T) {
	for name, above := range map[string]int{"a consumer each": 64, "shared": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a, _ := w.owning(500, 0, WithBuffer(10, 1<<20), WithSharedAbove(above))
				a.processWith(func(context.Context, Message) error { time.Sleep(time.Millisecond); return nil })
				w.waitRead(10 * time.Second)
				x, err := a.find(0)
				require.NoError(t, err)
				x.mu.Lock()
				defer x.mu.Unlock()
				require.LessOrEqual(t, cap(x.buf), 4*10)
			})
		})
	}
}
