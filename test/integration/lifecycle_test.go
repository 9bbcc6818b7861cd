package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
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
)

// TestGroupOfAnySize takes groups through their whole life: every partition is owned exactly once after each event.
func TestGroupOfAnySize(t *testing.T) {
	for _, n := range []int{3, 50, 200} {
		if n > 50 && underRace {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) { life(t, g, n) }, fast, grouptest.Partitions(5*n))
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
	step("leave of a follower", g.WaitRunningOn(5*time.Second, g.Live()...), 100*time.Millisecond)

	w = g.Follower()
	w.Kill()
	step("crash of a follower", g.WaitRunningOn(20*time.Second, g.Live()...), ttl+announced)

	w = g.Leader()
	w.Stop()
	step("leave of the leader", g.WaitRunningOn(5*time.Second, g.Live()...), 200*time.Millisecond)

	w = g.Leader()
	w.Kill()
	step("crash of the leader", g.WaitRunningOn(20*time.Second, g.Live()...), ttl+800*time.Millisecond)

	g.SetPartitions(5*time.Second, grouptest.Numbered(6*n)...)
	step("source grows", g.WaitRunningOn(5*time.Second, g.Live()...), time.Second)
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
