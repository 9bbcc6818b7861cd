package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Row 38: capacity below the number of partitions is reported and not silent; the rest runs, and what waits is placed with the next worker.
func TestCapacityBelowTheNumberOfPartitions(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		ws := g.Start(2, parti.WithCapacity(6, 0))
		g.WaitFor(10*time.Second, "as much as fits runs", func() bool { return g.Oracle.Idle() == 8 })
		g.Sleep(5 * time.Second)
		for _, w := range ws {
			require.Equal(t, 8, w.Manager.Status().Parked)
			require.Equal(t, 6, g.Counts()[w.ID()])
		}
		before := len(g.Checker.Commits())
		g.Sleep(10 * time.Minute)
		require.Len(t, g.Checker.Commits(), before, "no writes in steady state")

		starts := g.Oracle.Starts()
		small := g.Start(1, parti.WithCapacity(0, 3*types.DefaultWeight))[0]
		g.WaitFor(5*time.Second, "three more run", func() bool { return g.Oracle.Idle() == 5 })
		require.Equal(t, starts+3, g.Oracle.Starts(), "nothing moved for it")
		large := g.Start(1)[0]
		g.WaitAllRunning(5 * time.Second)
		require.LessOrEqual(t, g.Counts()[small.ID()], 3)
		require.GreaterOrEqual(t, g.Counts()[large.ID()], 5)
		g.Sleep(time.Minute)

		large.Stop()
		g.WaitFor(5*time.Second, "parked again", func() bool { return g.Oracle.Idle() == 5 })
	}, fast, grouptest.Partitions(20))
}
