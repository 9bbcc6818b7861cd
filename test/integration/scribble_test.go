package integration

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A strategy that writes over what it is asked changes no partition and no label: what it was given is a copy.
func TestStrategyThatWritesOverItsInput(t *testing.T) {
	scribble := types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
		owners := make([]int, len(in.Partitions))
		for i := range in.Partitions {
			owners[i] = i % len(in.Workers)
			for k := range in.Partitions[i].Keys {
				in.Partitions[i].Keys[k] = "scribbled"
			}
			in.Partitions[i].Label = "scribbled"
		}
		for i := range in.Workers {
			in.Workers[i].ID = "scribbled"
			for k := range in.Workers[i].Labels {
				in.Workers[i].Labels[k] = "scribbled"
			}
		}
		return owners, nil
	})
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(20 * time.Second)
		g.Start(1)
		g.WaitAllRunning(20 * time.Second)
		g.Sleep(time.Minute)
		require.Equal(t, 12, len(g.Oracle.Running()))
		require.Zero(t, g.Leader().Manager.Status().StrategyFailures)
	}, fast, grouptest.Partitions(12), grouptest.Strategy(scribble))
}
