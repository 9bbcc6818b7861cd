package assignment

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestGCLoop(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		var gc *CommitGC
		p, _, _ := g.leadOn(env.Connect("a"), func(c *PublisherConfig) { c.GCTrigger = func() { gc.Trigger() } })
		var mu sync.Mutex
		var begins []time.Duration
		during := func() {}
		begun := time.Now()
		gc = g.gcOf(p, func(c *CommitGCConfig) {
			c.Interval = 10 * time.Minute
			c.Applied = func() []int64 { // called in each pass
				mu.Lock()
				begins = append(begins, time.Since(begun).Truncate(time.Minute))
				now := during
				during = func() {}
				mu.Unlock()
				now()
				return nil
			}
		})
		once := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			during = f
		}
		passes := func() []time.Duration {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(begins)
		}
		wait := func(d time.Duration) { require.NoError(t, backoff.Sleep(t.Context(), d)) }

		state := spread(p.NextVersion(), 1, 2, partitions(4))
		for range 3 {
			state = touch(state, p.NextVersion(), 0)
			g.publish(p, state) // triggers before Start are remembered, and share a pass
		}
		require.NoError(t, gc.Start())
		require.ErrorIs(t, gc.Start(), types.ErrAlreadyStarted)
		wait(5*time.Minute + time.Second)
		require.Equal(t, []time.Duration{0, time.Minute}, passes())
		once(gc.Trigger) // one that comes during a pass leads to another
		g.publish(p, touch(state, p.NextVersion(), 0))
		wait(4 * time.Minute)
		require.Equal(t, []time.Duration{0, time.Minute, 5 * time.Minute, 6 * time.Minute}, passes())
		wait(12 * time.Minute)
		require.Equal(t, 16*time.Minute, slices.Max(passes()), "the interval")

		busy := make(chan struct{})
		once(func() { close(busy); <-gc.quit.Done() }) // Stop waits for the pass under way
		gc.Trigger()
		<-busy
		gc.Stop()
		gc.Stop()
		n := len(passes())
		gc.Trigger()
		gc.Start()
		wait(time.Hour)
		require.Len(t, passes(), n)

		never := g.gcOf(p)
		never.Stop()
		never.Start()
	})
}
