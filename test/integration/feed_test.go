package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// applied reports whether all workers follow the newest commit.
func applied(g *grouptest.Group, workers []*grouptest.Worker) bool {
	c, ok := g.Checker.LastCommit()
	if !ok {
		return false
	}
	for _, w := range workers {
		if w.Manager.Status().AppliedVersion != c.Version {
			return false
		}
	}
	return true
}

// Row 1: a commit made right after a restart of the server reaches every follower within 2 s of the server being up.
func TestCommitAfterServerRestartReachesAll(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(5)
		g.WaitAllRunning(10 * time.Second)
		g.Env.Restart()
		up := time.Now()
		g.SetPartitions(10*time.Second, grouptest.Numbered(31)...)
		g.WaitFor(2*time.Second, "the commit is applied by all", func() bool {
			c, _ := g.Checker.LastCommit()
			return c.Partitions == 31 && applied(g, g.Live())
		})
		t.Logf("applied %v after the server was up", time.Since(up))
	}, fast, grouptest.Partitions(30), grouptest.FileStorage())
}

// Row 2: what was committed during a cut of any length is applied within 1 s of reconnecting, and the cut worker does not spin.
func TestCommitDuringCutIsAppliedAfterReconnecting(t *testing.T) {
	for _, cut := range []time.Duration{time.Second, 8 * time.Second, 25 * time.Second} {
		t.Run(cut.String(), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				counts := map[*grouptest.Worker]*beats{}
				for range 5 {
					b := &beats{}
					counts[g.Start(1, parti.WithMetrics(b))[0]] = b
				}
				g.WaitAllRunning(10 * time.Second)
				w := g.Follower()
				tried, out := counts[w].tried.Load(), w.Client.Conn().Stats().OutMsgs
				w.Cut()
				g.Sleep(cut / 2)
				g.SetPartitions(5*time.Second, grouptest.Numbered(31)...)
				g.Sleep(cut - cut/2)
				// What is written to a connection that is down counts too: it waits in the client.
				sent := w.Client.Conn().Stats().OutMsgs - out
				t.Logf("during %v: %d messages, %d heartbeats tried", cut, sent, counts[w].tried.Load()-tried)
				require.LessOrEqual(t, sent, uint64(cut/time.Second)*4+4, "it must not spin while it is cut off")
				require.LessOrEqual(t, counts[w].tried.Load()-tried, int64(cut/time.Second)+1, "nor try heartbeats faster than otherwise")
				out = w.Client.Conn().Stats().OutMsgs
				w.Heal()
				g.WaitFor(time.Second, "the worker is connected again", w.Client.Conn().IsConnected)
				g.WaitFor(time.Second, "the newest commit is applied by all", func() bool { return applied(g, g.Live()) })
				require.Less(t, w.Client.Conn().Stats().OutMsgs-out, uint64(60), "it must not spin")
			}, fast, grouptest.Partitions(30))
		})
	}
}

// Row 3: a hook that blocks for minutes, across a restart of the server, delays other hooks and nothing else.
func TestBlockedHookStallsNothing(t *testing.T) {
	var release chan struct{}
	var assignments atomic.Int64
	hooks := parti.Hooks{OnAssignment: func(parti.Assignment) { assignments.Add(1); <-release }}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		release = make(chan struct{}) // of the bubble
		g.Start(2)
		blocked := g.Start(1, parti.WithHooks(hooks))[0]
		g.WaitFor(10*time.Second, "the hook is called", func() bool { return assignments.Load() == 1 })
		g.Env.Restart()
		g.Sleep(3 * time.Minute)
		for n := 31; n < 34; n++ {
			before := blocked.Manager.Status().AppliedVersion
			g.SetPartitions(5*time.Second, grouptest.Numbered(n)...)
			g.WaitFor(2*time.Second, "the blocked worker applies it", func() bool { return blocked.Manager.Status().AppliedVersion > before })
		}
		require.Equal(t, int64(1), assignments.Load())
		close(release)
		g.WaitFor(time.Second, "the other hooks follow, in order", func() bool { return assignments.Load() >= 4 })
	}, fast, grouptest.Partitions(30), grouptest.FileStorage())
}

// Row 4, the quiet half: ten minutes without a change cost no reads beyond the heartbeats, since each renewal of the leader shows
// that the feed lives. TestSilentFeedIsNoticed in package assignment is the other half.
func TestQuietFeedIsNotMistakenForADeadOne(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		before := w.Client.Conn().Stats().OutMsgs
		g.Sleep(10 * time.Minute)
		sent := w.Client.Conn().Stats().OutMsgs - before
		require.LessOrEqual(t, sent, uint64(610), "a follower sends its heartbeats, one a second, and nothing else")
	}, fast, grouptest.Partitions(30))
}

// Row 5: a group that begins with nothing at all gets to its first commit without a warning.
func TestFirstCommitEverMakesNoNoise(t *testing.T) {
	log := &warnings{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		require.Empty(t, log.lines())
	}, fast, grouptest.Partitions(30), grouptest.Manager(parti.WithLogger(log.logger())))
}

// Row 10: everybody was away for ten heartbeat lives; one that starts then leads and owns everything in about the settle time.
func TestGroupRestartsFromNothing(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		for _, w := range g.Live() {
			w.Kill()
		}
		g.Sleep(10 * ttl)
		began := time.Now()
		g.Start(1)
		g.WaitAllRunning(10 * time.Second)
		t.Logf("everything runs %v after the start", time.Since(began))
		require.Less(t, time.Since(began), 1500*time.Millisecond)
		require.True(t, g.Live()[0].Manager.IsLeader())
	}, fast, grouptest.Partitions(30))
}

// beats counts the heartbeats that a worker tried to write, and those that failed.
type beats struct {
	types.NopMetrics
	tried, failed atomic.Int64
}

func (b *beats) HeartbeatSent(_ time.Duration, err error) {
	if b.tried.Add(1); err != nil {
		b.failed.Add(1)
	}
}

// Row 13: one heartbeat that is lost ends nobody's incarnation.
func TestOneLostHeartbeatEvictsNobody(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		counts, lost := map[*grouptest.Worker]*beats{}, new(atomic.Int64)
		for range 3 {
			b := &beats{}
			counts[g.Start(1, parti.WithMetrics(b), countLost(lost))[0]] = b
		}
		g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		starts := g.Oracle.Starts()
		for range 4 {
			for _, w := range g.Live() {
				b := counts[w]
				tried, failed := b.tried.Load(), b.failed.Load()
				g.WaitFor(2*beat, "a heartbeat", func() bool { return b.tried.Load() > tried })
				require.Equal(t, failed, b.failed.Load(), "with an open network")
				g.Sleep(beat / 2)
				w.Client.Gate().Lose(natstest.ToServer) // the next heartbeat never arrives, and the connection is lost with it
				g.Sleep(beat * 3 / 4)
				w.Heal()
				g.WaitFor(2*beat, "it is known to be lost", func() bool { return b.failed.Load() > failed })
				g.Sleep(2 * beat)
				require.Equal(t, failed+1, b.failed.Load(), "one is lost, the next is stored")
			}
		}
		require.Equal(t, starts, g.Oracle.Starts(), "nothing was started anew")
		require.Zero(t, lost.Load())
	}, fast, grouptest.Partitions(30))
}

// Row 22: NATS and the workers restart together.
func TestServerAndWorkersRestartTogether(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3, parti.WithWorkerPool("pod"))
		g.WaitAllRunning(10 * time.Second)
		for _, w := range g.Live() {
			w.Kill()
		}
		g.Env.Restart()
		began := time.Now()
		g.Start(3, parti.WithWorkerPool("pod"))
		g.WaitAllRunning(20 * time.Second)
		t.Logf("everything runs %v after both were back", time.Since(began))
		require.Less(t, time.Since(began), ttl+3*time.Second)
	}, fast, grouptest.Partitions(30), grouptest.FileStorage())
}

// Row 34: a worker that is killed with kill -9 says nothing; its partitions run elsewhere within the TTL and half a second.
func TestKilledWorkerIsReplacedWithinTTL(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(5)
		g.WaitAllRunning(10 * time.Second)
		for range 3 {
			w := g.Follower()
			w.Kill()
			took := g.WaitRunningOn(10*time.Second, g.Live()...)
			t.Logf("all running again after %v", took)
			require.LessOrEqual(t, took, ttl+announced)
			g.Sleep(2 * time.Second)
		}
	}, fast, grouptest.Partitions(30))
}

// Rows 28 and 48 with a real group: exactly the least number of partitions moves when a worker joins.
func TestJoinMovesTheLeast(t *testing.T) {
	natstest.Long(t)
	for _, c := range []struct{ partitions, workers, moves int }{{10, 2, 3}, {1000, 50, 19}} {
		t.Run(fmt.Sprint(c.partitions), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(c.workers)
				g.WaitAllRunning(10 * time.Second)
				g.Start(1)
				g.WaitFor(10*time.Second, "the new worker has its share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
				last, _ := g.Checker.LastCommit()
				require.Equal(t, c.moves, last.Moved)
				require.Equal(t, c.moves, last.Least, "as the checker counts")
			}, fast, grouptest.Partitions(c.partitions))
		})
	}
}

// Row 27: two kinds of 18 partitions, 8 → 9 workers.
func TestTwoKindsStayEven(t *testing.T) {
	var ps []types.Partition
	for i := range 18 {
		ps = append(ps, types.NewPartition("a", fmt.Sprint(i)), types.NewPartition("b", fmt.Sprint(i)))
	}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(8)
		g.WaitAllRunning(10 * time.Second)
		require.LessOrEqual(t, g.Spread(), 1)
		g.Start(1)
		g.WaitFor(10*time.Second, "the new worker has its share", func() bool { return g.Oracle.Idle() == 0 && g.Counts()[g.Worker(8).ID()] > 0 })
		require.LessOrEqual(t, g.Spread(), 1)
	}, fast, grouptest.PartitionList(ps...))
}

// Row 30: the same input twice, and weights that jitter by 5 %, move nothing; the store is not written to.
func TestNoiseMovesNothing(t *testing.T) {
	weighted := func(shift int64) []types.Partition {
		ps := grouptest.Numbered(40)
		for i := range ps {
			ps[i].Weight = 100 + int64(i%3)*20
			ps[i].Weight += ps[i].Weight * shift * int64(i%2*2-1) / 100
		}
		return ps
	}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(4)
		g.WaitAllRunning(10 * time.Second)
		ctx := context.Background()
		before, _ := g.Checker.LastCommit()
		require.NoError(t, g.Follower().Manager.Refresh(ctx))
		require.NoError(t, g.Leader().Manager.Refresh(ctx))
		after, _ := g.Checker.LastCommit()
		require.Equal(t, before.Version, after.Version, "the same input makes no commit")
		starts := g.Oracle.Starts()
		for _, shift := range []int64{5, -5, 3} {
			g.SetPartitions(5*time.Second, weighted(shift)...)
			g.Sleep(3 * time.Second)
		}
		require.Equal(t, starts, g.Oracle.Starts(), "nothing moves")
	}, fast, grouptest.PartitionList(weighted(0)...))
}
