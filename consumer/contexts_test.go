package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A loop over All whose context ends while there is more to hand out ends with the context's error.
func TestAllEndsWithItsContext(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.owning(10, 4)
		ctx, cancel := context.WithCancel(context.Background())
		var got []string
		var last error
		for m, err := range a.All(ctx) {
			if last = err; err != nil {
				continue
			}
			if got = append(got, string(m.Data)); len(got) == 3 {
				cancel()
			}
		}
		require.Equal(t, []string{"1", "2", "3"}, got)
		require.ErrorIs(t, last, context.Canceled)
		cancel()
	})
}

// A message whose handler gave up because the context of Process has ended is handed out by the next call.
func TestProcessAgain(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(3, 4, WithFetchWait(time.Second, 0))
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := a.Process(short, func(ctx context.Context, _ Message) error { <-ctx.Done(); return ctx.Err() })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ms, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"4/1", "4/2", "4/3"}, texts(ms))
	})
}

// A Seek that is under way when its partition is given back has moved it, or says that the partition is lost: its own context goes on.
func TestSeekWhileThePartitionIsGivenBack(t *testing.T) {
	for _, d := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond} {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				a, ctx := w.owning(10, 4)
				a.client.Gate().Delay(20 * time.Millisecond)
				sought := make(chan error, 1)
				go func() { sought <- a.Seek(ctx, 4, Latest()) }()
				time.Sleep(d)
				a.leave()
				if err := <-sought; err != nil {
					require.ErrorIs(t, err, ErrPartitionLost)
					require.ErrorIs(t, err, ErrReaderClosed)
				}
			})
		})
	}
}

// A Seek that waits for its own caller does not hold back the end of the ownership.
func TestSeekInAHandlerEndsWithTheOwnership(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.owning(3, 4)
		failed := make(chan error, 1)
		a.processWith(func(_ context.Context, m Message) error {
			err := a.Seek(context.Background(), m.Partition, Earliest())
			select {
			case failed <- err:
			default:
			}
			return err
		})
		time.Sleep(time.Second)
		began := time.Now()
		a.leave()
		require.Less(t, time.Since(began), time.Second)
		require.ErrorIs(t, <-failed, ErrPartitionLost)
	})
}

// gone counts the partitions whose gauges have ended.
type gone struct {
	NopMetrics
	n atomic.Int64
}

func (g *gone) PartitionGone(int) { g.n.Add(1) }

// A partition that is lost is not shown as owned any more, however long its handler takes to return.
func TestLostWhileAHandlerHangs(t *testing.T) {
	bubble(t, func(w *world) {
		g := &gone{}
		a, ctx := w.owning(3, 4, WithMetrics(g))
		var hung Message
		release, handed := make(chan struct{}), make(chan struct{}, 1)
		defer sync.OnceFunc(func() { close(release) })()
		a.processWith(func(ctx context.Context, m Message) error {
			hung = m
			close(handed)
			<-release
			return ctx.Err()
		})
		<-handed
		a.client.Gate().Cut()
		time.Sleep(30 * time.Second)
		require.Empty(t, a.Assigned())
		require.Empty(t, a.Stats().Partitions)
		require.EqualValues(t, w.parts, g.n.Load())
		require.ErrorIs(t, a.Ack(ctx, hung), ErrPartitionLost)
		a.client.Gate().Heal()
	})
}
