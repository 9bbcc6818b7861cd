package consumer

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One partition that acknowledges without pause does not count as many: what another one acknowledges later is stored within the delay for two.
func TestBusyAckDelaysNobody(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(1500, 0)
		w.publish(1, 1)
		a := w.join(WithBuffer(2000, 1<<26), WithFetchWait(5*time.Second, time.Second))
		w.waitOwned(10 * time.Second)
		time.Sleep(time.Second)
		ctx := w.ctx(time.Hour)
		ms, err := a.Fetch(ctx, 2000)
		require.NoError(t, err)
		require.Len(t, ms, 1501)
		var other Message
		n := 0
		for _, m := range ms {
			if m.Partition == 1 {
				other = m
			}
		}
		var began time.Time
		for _, m := range ms {
			if m.Partition == 1 {
				continue
			}
			require.NoError(t, a.Ack(ctx, m))
			time.Sleep(time.Millisecond)
			if n++; n == 1000 { // now many writes lie behind it
				began = time.Now()
				require.NoError(t, a.AckLater(other))
			}
			if n > 1000 && a.Stats().Partitions[1].Committed == other.Sequence {
				break
			}
		}
		require.Equal(t, other.Sequence, a.Stats().Partitions[1].Committed)
		require.Less(t, time.Since(began), 200*time.Millisecond)
	})
}

// Messages expire behind full buffers of partitions that are read together, and the feed is made anew before anybody has looked: the loss is reported
// all the same.
func TestLossBeforeTheFeedIsMadeAnew(t *testing.T) {
	bubble(t, func(w *world) {
		w.small(100)
		var mu sync.Mutex
		gone := map[int]bool{}
		a := w.join(WithBuffer(100, 1<<20), WithHooks(Hooks{OnExpired: func(e *ExpiredError) {
			mu.Lock()
			defer mu.Unlock()
			gone[e.Partition] = true
		}}))
		w.waitOwned(10 * time.Second)
		time.Sleep(2 * time.Second)
		for range 49 {
			w.publish(1)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		w.publish(30)
		time.Sleep(40 * time.Second)
		w.publish(1)
		time.Sleep(5 * time.Second)
		ctx := w.ctx(time.Hour)
		read := make([]int, w.parts)
		fetch := func() {
			for {
				ms, err := a.Fetch(ctx, 1000)
				require.NoError(t, err)
				if len(ms) == 0 {
					return
				}
				require.NoError(t, a.Ack(ctx, ms...))
				for _, m := range ms {
					read[m.Partition]++
				}
			}
		}
		fetch()
		a.shares["ORDERS"].breakFeed(errGap)
		time.Sleep(10 * time.Second)
		fetch()
		mu.Lock()
		defer mu.Unlock()
		for p, n := range read {
			require.Less(t, n, 80, "partition %d has lost some", p)
			require.True(t, gone[p], "partition %d: told of it", p)
		}
	}, withOptions(WithSharedAbove(0), WithFetchWait(50*time.Millisecond, 0)))
}
