package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Seek in OnAssigned says where reading begins.
func TestSeekInOnAssigned(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		var a *member
		var failed atomic.Int64
		a = w.make(WithHooks(Hooks{OnAssigned: func(p int, _ int64) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if p == 3 && a.Seek(ctx, p, Latest()) != nil {
				failed.Add(1)
			}
		}}))
		ctx := w.ctx(time.Hour)
		require.NoError(t, a.Start(ctx))
		w.env.WaitFor(10*time.Second, "every partition is read", func() bool {
			n := 0
			for _, p := range a.Stats().Partitions {
				n += p.Buffered
			}
			return n == 70
		})
		require.Zero(t, failed.Load())
		o, err := a.Committed(ctx, 3)
		require.NoError(t, err)
		require.EqualValues(t, 80, o.Sequence)
		ms, err := a.Fetch(ctx, 100)
		require.NoError(t, err)
		require.Len(t, ms, 70)
	})
}

// A Seek whose context ends before it was carried out does not move the partition later.
func TestSeekIsWithdrawn(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		a := w.join()
		release := make(chan struct{})
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 3 && string(m.Data) == "5" {
				<-release
			}
			return nil
		})
		w.waitOwned(10 * time.Second)
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Seek(short, 3, Earliest()), context.DeadlineExceeded)
		close(release)
		w.publish(5)
		w.waitRead(10 * time.Second)
		require.Zero(t, w.ledger.again(), "it has not moved")
	})
}

// A Seek whose context ends when the partition has moved says that it has.
func TestSeekThatIsNotStored(t *testing.T) {
	bubble(t, func(w *world) {
		w.ledger.unjudged = true
		w.create()
		w.publish(5)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		w.block(ctx)
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := a.Seek(short, 3, Latest())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var unstored *UnstoredSeekError
		require.ErrorAs(t, err, &unstored)
		require.Equal(t, 3, unstored.Partition)
		w.unblock(ctx)
		require.NoError(t, a.Seek(ctx, 3, Latest()))
		ms, err := a.Fetch(ctx, 100)
		require.NoError(t, err)
		require.Len(t, ms, 35)
	})
}
