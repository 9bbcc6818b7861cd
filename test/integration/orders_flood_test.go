package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Orders that nobody can follow do not hold up those behind them, and what is ordered together is done with one commit.
func TestOrdersBehindMany(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		t := g.T
		settled(g, 5)
		p := newPoison(g)
		before, _ := g.Checker.LastCommit()
		for n := range 300 {
			_, err := p.conn.Request(fmt.Sprintf("$KV.%s.control.f%d", p.control.Bucket(), n), []byte(`{"kind":"evict-partition","worker":"nobody","partition":"p.0"}`), time.Second)
			require.NoError(t, err)
		}
		var drained []string
		for _, w := range g.Live() {
			if w != g.Leader() && len(drained) < 2 {
				drained = append(drained, w.ID())
				p.put(p.control, types.ControlPrefix+"drain-"+w.ID(), `{"kind":"drain","worker":"`+w.ID()+`"}`)
			}
		}
		g.WaitFor(3*time.Second, "all are answered", func() bool {
			v, err := parti.Inspect(t.Context(), newOperator(g).js, grouptest.Namespace)
			require.NoError(t, err)
			answered := 0
			for _, o := range v.Orders {
				if o.State != "" {
					answered++
				}
			}
			return answered == 302
		})
		now, _ := g.Checker.LastCommit()
		t.Logf("drained %v with %d commits", drained, now.Version-before.Version)
		require.Greater(t, now.Version, before.Version)
		g.WaitFor(time.Second, "they have nothing", func() bool { return g.Counts()[drained[0]]+g.Counts()[drained[1]] == 0 })
		require.LessOrEqual(t, now.Version-before.Version, int64(2))
	})
}

// Of the two workers that carry a label one may be drained, and not both, also where both orders come at once and only the first one has such a
// partition.
func TestDrainsTogetherLeaveNoLabelBehind(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(1)
		x := g.Start(1, parti.WithLabels("gpu"))[0]
		g.WaitAllRunning(20 * time.Second)
		y := g.Start(1, parti.WithLabels("gpu"))[0]
		g.Sleep(20 * time.Second)
		require.Equal(t, 1, g.Counts()[x.ID()])
		require.Zero(t, g.Counts()[y.ID()])
		p := newPoison(g)
		for _, w := range []*grouptest.Worker{x, y} {
			key := "$KV." + p.control.Bucket() + "." + types.ControlPrefix + "drain-" + w.ID()
			require.NoError(t, p.conn.Publish(key, []byte(`{"kind":"drain","worker":"`+w.ID()+`"}`)))
		}
		g.Sleep(5 * time.Second)
		v, err := parti.Inspect(g.T.Context(), newOperator(g).js, grouptest.Namespace)
		require.NoError(t, err)
		var states []types.ControlState
		for _, o := range v.Orders {
			states = append(states, o.State)
		}
		require.ElementsMatch(t, []types.ControlState{types.ControlDone, types.ControlRefused}, states)
		g.WaitAllRunning(5 * time.Second)
	}, fast, grouptest.PartitionList(types.Partition{Keys: []string{"g"}, Label: "gpu"}, types.NewPartition("a"), types.NewPartition("b")))
}
