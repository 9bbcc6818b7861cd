package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A partition that waits for Resume after a message that could not be processed is stopped anew by what happens to its stream. That is told once, and
// nothing is read in a circle meanwhile; Resume goes on with what is there.
func TestStreamChangesUnderAStoppedPartition(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		cause  error
		next   uint64   // sequence that is handed out first then
		last   []uint64 // those that are last
	}{
		"expired":  {func(w *world) { purge(w, 97) }, ErrExpired, 5, []uint64{97, 98, 99, 100}},
		"recreate": {func(w *world) { w.remake(3) }, ErrStreamChanged, 1, []uint64{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var mu sync.Mutex
				var stops []error
				var handled []uint64
				gone, cured := 0, false
				a, _ := w.owning(100, 0, WithRetry(Retry{Attempts: 1}), WithBuffer(10, 1<<20), WithExpired(ExpiredFail), WithHooks(Hooks{
					OnStopped: func(_ int, err error) { mu.Lock(); stops = append(stops, err); mu.Unlock() },
					OnExpired: func(*ExpiredError) { mu.Lock(); gone++; mu.Unlock() },
				}))
				w.ledger.Exempt(0)
				a.processWith(func(_ context.Context, m Message) error {
					mu.Lock()
					defer mu.Unlock()
					if m.Sequence == 5 && !cured {
						return errBad
					}
					handled = append(handled, m.Sequence)
					return nil
				})
				time.Sleep(2 * time.Second)
				require.ErrorIs(t, a.Stats().Partitions[0].Stopped, ErrPoison)
				a.client.Gate().Delay(5 * time.Millisecond) // time is to pass where requests follow each other without a wait
				c.change(w)
				time.Sleep(3 * time.Second)
				sent := a.client.Conn().Stats().OutMsgs
				time.Sleep(10 * time.Second)
				require.Less(t, a.client.Conn().Stats().OutMsgs-sent, uint64(300), "messages sent in 10 s")
				require.ErrorIs(t, a.Stats().Partitions[0].Stopped, c.cause)
				mu.Lock()
				require.Len(t, stops, 2)
				require.ErrorIs(t, stops[0], ErrPoison)
				require.ErrorIs(t, stops[1], c.cause)
				require.LessOrEqual(t, gone, 1)
				require.Equal(t, []uint64{1, 2, 3, 4}, handled)
				cured = true
				mu.Unlock()
				a.Resume(0)
				time.Sleep(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, c.next, handled[4])
				require.Equal(t, c.last, handled[len(handled)-len(c.last):])
			}, withLayout(SubjectPerPartition("ORDERS", "orders", 1)))
		})
	}
}

// remake makes the stream anew, with n messages of partition 0.
func (w *world) remake(n int) {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(w.ctx(time.Minute), "ORDERS"))
	w.create()
	w.ledger.Forget(0)
	w.next[0] = 1000
	w.publish(n, 0)
}

// A handler's error is no news of the stream that is read here, whatever it wraps: Resume tries the message again, and passes nothing over.
func TestHandlerThatReadsAnotherStream(t *testing.T) {
	for name, foreign := range map[string]error{
		"expired": &ExpiredError{Stream: "OTHER", First: 1, Last: 90}, "changed": &StreamChangedError{LastSequence: 90},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				failed := false
				a, _ := w.owning(100, 0, WithRetry(Retry{Attempts: 1}), WithBuffer(20, 1<<20))
				a.processWith(func(_ context.Context, m Message) error {
					if m.Sequence == 5 && !failed {
						failed = true
						return fmt.Errorf("reading another stream: %w", errors.Join(errBad, foreign))
					}
					return nil
				})
				time.Sleep(2 * time.Second)
				require.ErrorIs(t, a.Stats().Partitions[0].Stopped, ErrPoison)
				a.Resume(0)
				w.waitRead(10 * time.Second)
				require.Zero(t, w.ledger.again())
			})
		})
	}
}
