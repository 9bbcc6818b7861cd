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

// fast is a timing for groups whose crashes are to be repaired soon.
var fast = grouptest.Manager(
	parti.WithHeartbeat(time.Second, 3*time.Second),
	parti.WithLeaderLease(3*time.Second),
	parti.WithWindows(2*time.Second, time.Second, 500*time.Millisecond),
	parti.WithCooldown(time.Second),
)

const (
	ttl       = 3 * time.Second
	announced = 500 * time.Millisecond // the server's delay until it announces an expiry, and the handoff
	spread    = 50 * time.Millisecond  // candidates for the lead wait for up to so long, so that not all contend at once
)

// TestGroupOfAnySize takes groups through their whole life: every partition is owned exactly once after each event.
func TestGroupOfAnySize(t *testing.T) {
	natstest.Long(t)
	for _, n := range []int{3, 50, 200} {
		if n > 50 && underRace {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) { life(t, g, n) }, fast, grouptest.Partitions(5*n), grouptest.FileStorage())
		})
	}
}

func life(t *testing.T, g *grouptest.Group, n int) {
	step := func(what string, took, limit time.Duration) {
		t.Helper()
		t.Logf("%3d workers, %-22s %8v", n, what, took.Round(time.Millisecond))
		require.LessOrEqual(t, took, limit, what)
		require.LessOrEqual(t, g.Spread(), 1, "%s: %v", what, g.Counts())
	}
	g.Start(n)
	step("start", g.WaitAllRunning(10*time.Second), 3*time.Second)

	g.Start(2)
	step("join of two", g.WaitRunningOn(10*time.Second, g.Live()...)+g.WaitFor(5*time.Second, "the new worker has its share", func() bool { return g.Spread() <= 1 }), 3*time.Second)

	w := g.Follower()
	w.Stop()
	step("leave of a follower", g.WaitRunningOn(5*time.Second, g.Live()...), moveLimit)

	w = g.Follower()
	w.Kill()
	step("crash of a follower", g.WaitRunningOn(20*time.Second, g.Live()...), ttl+announced)

	w = g.Leader()
	w.Stop()
	step("leave of the leader", g.WaitRunningOn(5*time.Second, g.Live()...), moveLimit+spread)

	w = g.Leader()
	w.Kill()
	step("crash of the leader", g.WaitRunningOn(20*time.Second, g.Live()...), ttl+announced+spread)

	starts := g.Oracle.Starts()
	g.Env.Restart()
	g.Sleep(ttl + leadTerm)
	step("restart of the server", g.WaitRunningOn(time.Second, g.Live()...), 0)
	require.Equal(t, starts, g.Oracle.Starts(), "nothing moves because of a short restart")

	for _, c := range []struct {
		what string
		list []types.Partition
	}{
		{"source grows", grouptest.Numbered(6 * n)},
		{"source shrinks", grouptest.Numbered(3*n + 1)},
		{"source is replaced", others(4 * n)},
	} {
		g.SetPartitions(5*time.Second, c.list...)
		step(c.what, g.WaitRunningOn(5*time.Second, g.Live()...), moveLimit)
		g.WaitFor(time.Second, "all follow the commit, and nothing else runs", func() bool {
			last, _ := g.Checker.LastCommit()
			return last.Partitions == len(c.list) && applied(g, g.Live()) && len(g.Oracle.Running()) == len(c.list)
		})
	}
}

// others returns n partitions that are not those of grouptest.Numbered.
func others(n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("q-%04d", i))
	}
	return ps
}

// TestServerRestart: the store survives on disk; nobody loses what it owns, and a commit made afterwards is applied by all.
func TestServerRestart(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(5)
		g.WaitAllRunning(10 * time.Second)
		before := g.Oracle.Starts()
		g.Env.Restart()
		g.Sleep(5 * time.Second)
		require.Equal(t, before, g.Oracle.Starts(), "nothing moves because of a short restart")
		g.Start(1)
		g.WaitFor(10*time.Second, "the new worker has its share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
	}, fast, grouptest.Partitions(30), grouptest.FileStorage(), grouptest.Server(natstest.WithVirtualLimit(time.Hour)))
}
