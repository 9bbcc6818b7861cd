package integration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A process that alone may lead is elected again each time that its strategy, which never returns, ends its lead. The calls that it leaves behind
// are few, what runs goes on, and when they return all is well again.
func TestHungStrategyPilesUpNoCalls(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		var under atomic.Int64
		release := make(chan struct{})
		count := &counter{}
		w := g.StartWith(types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			under.Add(1)
			defer under.Add(-1)
			<-release
			if len(in.Workers) == 0 {
				return nil, errors.New("nobody is there")
			}
			return make([]int, len(in.Partitions)), nil // all to the first
		}), parti.WithMetrics(count))
		g.WaitAllRunning(30 * time.Second)
		starts := g.Oracle.Starts()
		g.WaitFor(15*time.Minute, "it has led six times", func() bool { return count.elected.Load() >= 6 })
		g.Sleep(30 * time.Second)
		require.EqualValues(t, 4, under.Load())
		require.ErrorContains(t, w.Manager.Status().LastError, "4 earlier calls have not returned")
		require.Equal(t, starts, g.Oracle.Starts(), "nothing moves")
		close(release)
		g.WaitFor(time.Minute, "the strategy works", func() bool { return under.Load() == 0 && w.Manager.Status().StrategyFailures == 0 })
		elected := count.elected.Load()
		g.Sleep(2 * time.Minute)
		require.Equal(t, elected, count.elected.Load(), "it leads for good")
	}, fast)
}
