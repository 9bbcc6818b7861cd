package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// small is a stream that keeps few messages, with one busy partition and others that are idle.
func (w *world) small(most int64) {
	w.t.Helper()
	w.ledger.unjudged = true // by what is left in the stream
	_, err := w.js.CreateStream(w.ctx(time.Minute), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage, MaxMsgs: most, AllowDirect: true,
	})
	require.NoError(w.t, err)
}

// Where partitions are read together, one that is idle while the stream's beginning moves on under steady load has lost nothing either.
func TestIdlePartitionReadWithBusyOnes(t *testing.T) {
	for name, policy := range map[string]ExpiredPolicy{"skip": ExpiredSkip, "fail": ExpiredFail} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.small(200)
				w.publish(2)
				gone := 0
				a := w.join(WithExpired(policy), WithHooks(Hooks{OnExpired: func(e *ExpiredError) { gone++; t.Log(e) }}))
				a.process()
				w.waitRead(10 * time.Second)
				for range 100 { // the consumer is never idle
					w.publish(5, 1)
					time.Sleep(100 * time.Millisecond)
				}
				w.publish(1)
				w.waitRead(5 * time.Second)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Zero(t, gone)
				a.leave()
			}, withOptions(WithSharedAbove(0)))
		})
	}
}

// A partition that was paused when it had read everything has lost nothing while only others' messages come and go.
func TestPausedPartitionLosesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		w.small(200)
		w.publish(2)
		gone := 0
		a := w.join(WithHooks(Hooks{OnExpired: func(e *ExpiredError) { gone++; t.Log(e) }}))
		a.process()
		w.waitRead(10 * time.Second)
		for range 30 {
			w.publish(10, 1)
			time.Sleep(time.Second)
		}
		for p := range 8 {
			if p != 1 {
				a.Pause(p)
			}
		}
		time.Sleep(40 * time.Second) // longer than a pull
		w.publish(100, 1)
		time.Sleep(5 * time.Second)
		a.Resume()
		w.publish(1)
		w.waitRead(5 * time.Second)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Zero(t, gone)
	})
}

// A partition that a look has stopped waits for Resume, in peace.
func TestStoppedByALook(t *testing.T) {
	bubble(t, func(w *world) {
		w.small(100)
		w.publish(50, 3)
		a := w.join(WithExpired(ExpiredFail), WithBuffer(10, 1<<20))
		w.waitOwned(10 * time.Second)
		time.Sleep(5 * time.Second)
		w.publish(200, 4) // what partition 3 has not read is gone
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, a.Stats().Partitions[3].Stopped, ErrExpired)
		time.Sleep(time.Minute)
		a.Resume(3)
		ctx := w.ctx(time.Hour)
		n := 0
		for range 20 {
			ms, err := a.Fetch(ctx, 100)
			if err == nil {
				require.NoError(t, a.Ack(ctx, ms...))
			}
			for _, m := range ms {
				if m.Partition == 3 {
					n++
				}
			}
		}
		require.Equal(t, 10, n, "those that were held in memory")
		require.NoError(t, a.Stats().Partitions[3].Stopped)
	})
}

// What retention takes while partitions that are read together are held back is reported by each that may have lost something.
func TestExpiredBehindABusyHandler(t *testing.T) {
	bubble(t, func(w *world) {
		w.small(100)
		gone := map[int]bool{}
		a := w.join(WithBuffer(10, 1<<20), WithHooks(Hooks{OnExpired: func(e *ExpiredError) {
			w.ledger.mu.Lock()
			defer w.ledger.mu.Unlock()
			gone[e.Partition] = true
		}}))
		w.waitOwned(10 * time.Second)
		w.publish(1)
		time.Sleep(5 * time.Second)
		w.publish(10, 1, 2, 3, 4, 5, 6, 7) // buffers are full
		time.Sleep(time.Second)
		w.publish(10, 0)
		w.publish(200, 1)
		time.Sleep(5 * time.Second)
		w.publish(1)
		ctx := w.ctx(time.Hour)
		read := map[int]int{}
		for range 100 {
			ms, err := a.Fetch(ctx, 100)
			require.NoError(t, err)
			require.NoError(t, a.Ack(ctx, ms...))
			for _, m := range ms {
				read[m.Partition]++
			}
		}
		synctest.Wait()
		for p := range w.parts {
			if read[p] < w.next[p] {
				require.True(t, gone[p], "partition %d: %d of %d read", p, read[p], w.next[p])
			}
		}
		t.Log(read, gone)
	}, withOptions(WithSharedAbove(0), WithFetchWait(100*time.Millisecond, 0)))
}

// What idle partitions have seen pass by is not read again when the consumer of all is made anew.
func TestIdlePartitionHoldsNobodyBack(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(1)
		a := w.join()
		a.process()
		w.waitRead(10 * time.Second)
		w.publish(500, 1)
		w.waitRead(10 * time.Second)
		time.Sleep(10 * time.Second)
		a.shares["ORDERS"].breakFeed(errGap)
		time.Sleep(10 * time.Second)
		names := consumers(w)
		require.Len(t, names, 1)
		c, err := w.js.Consumer(w.ctx(time.Minute), "ORDERS", names[0])
		require.NoError(t, err)
		require.Zero(t, c.CachedInfo().Delivered.Consumer)
		w.publish(1)
		w.waitRead(10 * time.Second)
	}, withOptions(WithSharedAbove(0)))
}

// Nor does one need a consumer of its own for longer than it takes to see that nothing of it is there.
func TestIdleLaggardJoinsTheOthers(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(1)
		a := w.join()
		a.process()
		for range 3 * farBehind / 2 / 500 {
			for range 500 / (w.parts - 1) {
				w.publishAsync(1, 2, 3, 4, 5, 6, 7)
			}
		}
		w.waitRead(10 * time.Second)
		time.Sleep(time.Second)
		a.kill()
		b := w.join()
		b.process()
		time.Sleep(3 * time.Minute)
		require.Len(t, consumers(w), 1)
		w.publish(1)
		w.waitRead(10 * time.Second)
	}, withOptions(WithSharedAbove(0)))
}
