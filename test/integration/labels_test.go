package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func labelled(label string, n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.Partition{Keys: []string{"l-" + label, fmt.Sprint(i)}, Label: label}
	}
	return ps
}

func labelState(g *grouptest.Group) types.LabelState {
	s, ok := g.Leader().Manager.LabelState()
	require.True(g.T, ok)
	return s
}

// Row 29: nobody may have a partition: it is parked and reported, the others run, and it runs as soon as somebody may have it.
func TestLabelNobodyCarries(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitFor(10*time.Second, "the others run", func() bool { return g.Oracle.Idle() == 5 })
		g.Sleep(time.Minute)
		for _, w := range g.Live() {
			require.Equal(t, 5, w.Manager.Status().Parked)
		}
		require.Equal(t, types.LabelState{PoolSizes: map[string]int{"gpu": 0}, Parked: map[string]int{"gpu": 5}}, labelState(g))
		_, ok := g.Follower().Manager.LabelState()
		require.False(t, ok, "only the leader knows")
		before := len(g.Checker.Commits())
		g.Sleep(10 * time.Minute)
		require.Len(t, g.Checker.Commits(), before, "no writes in steady state")

		gpu := g.Start(1, parti.WithLabels("gpu"))[0]
		g.WaitAllRunning(5 * time.Second)
		require.Equal(t, 5, g.Counts()[gpu.ID()], "it gets those with its label, and no others")
		require.Equal(t, types.LabelState{PoolSizes: map[string]int{"gpu": 1}, Parked: map[string]int{"gpu": 0}}, labelState(g))
		gpu.Stop()
		g.WaitFor(5*time.Second, "parked again", func() bool { return g.Leader().Manager.Status().Parked == 5 })
	}, fast, grouptest.PartitionList(append(grouptest.Numbered(20), labelled("gpu", 5)...)...))
}

// With a grace, partitions of a label that nobody carries go to others after it, and return.
func TestLabelSpills(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		gpu := g.Start(1, parti.WithLabels("gpu"))[0]
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(20 * time.Second)
		gpu.Stop()
		g.Sleep(25 * time.Second)
		require.Equal(t, 6, g.Oracle.Idle(), "they wait for the grace")
		took := g.WaitAllRunning(10 * time.Second)
		t.Logf("all running %v after 25 s", took)
		require.Zero(t, g.Leader().Manager.Status().Parked)
		first := g.Leader()
		first.Stop() // the next leader does not park them again
		g.Start(1)
		g.WaitAllRunning(5 * time.Second)
		g.Sleep(20 * time.Second)
		require.Zero(t, g.Oracle.Idle())
		back := g.Start(1, parti.WithLabels("gpu"))[0]
		g.WaitFor(10*time.Second, "they are back", func() bool { return g.Oracle.Idle() == 0 && g.Counts()[back.ID()] == 6 })
	}, fast, grouptest.Spilling(30*time.Second), grouptest.PartitionList(append(grouptest.Numbered(12), labelled("gpu", 6)...)...))
}

// Workers with several labels are in several pools, and what they have of one counts in the others.
func TestWorkerInSeveralPools(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		a := g.Start(1, parti.WithLabels("x"))[0]
		both := g.Start(1, parti.WithLabels("x", "y"))[0]
		b := g.Start(1, parti.WithLabels("y"))[0]
		g.WaitFor(20*time.Second, "a fair share for each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 3 })
		t.Logf("x: %d, x and y: %d, y: %d", g.Counts()[a.ID()], g.Counts()[both.ID()], g.Counts()[b.ID()])
		before := len(g.Checker.Commits())
		g.Sleep(5 * time.Minute)
		require.Len(t, g.Checker.Commits(), before)
	}, fast, grouptest.PartitionList(append(labelled("x", 12), labelled("y", 12)...)...))
}
