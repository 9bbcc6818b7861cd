package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// A group that waits for nothing: the first commit is made when there is a leader, each join is one of its own at once, and a label that nobody
// carries binds nobody. It comes to rest all the same.
func TestNoWindows(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		const soon = 300 * time.Millisecond // some exchanges with the server; without the options 2 s, and 10 s from join to join
		g.Start(1)
		t.Logf("the first runs everything after %v", g.WaitAllRunning(soon))
		for n := 2; n <= 4; n++ {
			g.Start(1)
			took := g.WaitFor(soon, "its share", func() bool { return len(g.Counts()) == n && g.Oracle.Idle() == 0 && g.Spread() <= 1 })
			t.Logf("number %d has its share after %v", n, took)
		}
		require.Zero(t, g.Leader().Manager.Status().Parked)
		g.Sleep(time.Minute)
		before := len(g.Checker.Commits())
		g.Sleep(5 * time.Minute)
		require.Len(t, g.Checker.Commits(), before)

		w := g.Follower() // dies soon after it was given others' partitions, and is not damped
		w.Kill()
		g.WaitRunningOn(ttl+announced, g.Live()...)
		back := g.Start(1, parti.WithWorkerID("comes-and-goes"))[0]
		g.WaitFor(soon, "its share", func() bool { return g.Counts()[back.ID()] >= 4 })
		back.Kill()
		g.WaitRunningOn(ttl+announced, g.Live()...)
		back = g.Start(1, parti.WithWorkerID("comes-and-goes"))[0]
		g.WaitFor(soon, "its share", func() bool { return g.Counts()[back.ID()] >= 4 })
	}, grouptest.Spilling(0), grouptest.Manager(
		parti.WithHeartbeat(beat, ttl), parti.WithLeaderLease(leadTerm), parti.WithWindows(0, 0, 0), parti.WithCooldown(0), parti.WithDampingPeriod(0),
	), grouptest.PartitionList(append(grouptest.Numbered(12), labelled("gpu", 6)...)...))
}
