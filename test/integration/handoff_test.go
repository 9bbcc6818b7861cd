package integration

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// moveLimit is what a planned move may take besides its handler's own time.
const moveLimit = 60 * time.Millisecond

// slow makes the handlers of some partitions take d to return.
func slow(d time.Duration, partitions ...string) grouptest.Option {
	return grouptest.Drain(func(p string) time.Duration {
		for _, s := range partitions {
			if s == p {
				return d
			}
		}
		return 0
	})
}

// taken has the worker that runs the partition drained, and returns it.
func taken(g *grouptest.Group, op operator, partition string) *grouptest.Worker {
	g.T.Helper()
	id := g.Oracle.Running()[partition].Worker
	_, err := op.drain(5*time.Second, id, parti.WithoutWaiting())
	require.NoError(g.T, err)
	for _, w := range g.Live() {
		if w.ID() == id {
			return w
		}
	}
	g.T.Fatalf("no worker %s", id)
	return nil
}

// handoffs counts what handoffs report.
type handoffs struct {
	types.NopMetrics
	forced, overdue atomic.Int64
}

func (h *handoffs) HandoffForced(string)  { h.forced.Add(1) }
func (h *handoffs) HandlerOverdue(string) { h.overdue.Add(1) }

// A handler that drains for 10 s delays no other partition, and its own goes on at once when it has returned.
func TestOneSlowDrainDelaysNoOther(t *testing.T) {
	const stuck = "p-0003"
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		began := time.Now()
		starts := g.Oracle.Starts()
		w := taken(g, op, stuck)
		others := g.WaitFor(time.Second, "the others run elsewhere", func() bool { return g.Oracle.Starts()-starts == 9 })
		t.Logf("the other 9 within %v of the order", others)
		require.LessOrEqual(t, time.Since(began), moveLimit, "order, answer, commit and handoff")
		require.Equal(t, w.ID(), g.Oracle.Running()[stuck].Worker)
		g.WaitFor(11*time.Second, "the slow one runs elsewhere", func() bool { return g.Oracle.Running()[stuck].Worker != w.ID() && g.Oracle.Idle() == 0 })
		t.Logf("the slow one after %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 10*time.Second+moveLimit)
		require.LessOrEqual(t, g.Oracle.Gaps().Longest.Length(), 10*time.Second)
	}, fast, grouptest.Partitions(40), slow(10*time.Second, stuck))
}

// Row 35: the old owner crashes after it was told to stop and before it has released: the new owner starts when the key expires.
func TestCrashBetweenRevokeAndRelease(t *testing.T) {
	const stuck = "p-0003"
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		w := taken(g, op, stuck)
		g.Sleep(200 * time.Millisecond)
		require.Equal(t, w.ID(), g.Oracle.Running()[stuck].Worker, "it has not returned")
		began := time.Now()
		w.Kill()
		g.WaitAllRunning(ttl + announced)
		t.Logf("runs again %v after the crash", time.Since(began))
		require.Greater(t, time.Since(began), ttl/2, "not before the lease has run out")
	}, fast, grouptest.Partitions(40), slow(20*time.Second, stuck))
}

// Row 36: a drain outlives its deadline, is reported, and ends: it is acknowledged, and the waiting owner starts at once.
func TestDrainOutlivesItsDeadline(t *testing.T) {
	const stuck = "p-0003"
	count := &handoffs{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		began := time.Now()
		w := taken(g, op, stuck)
		g.WaitFor(3*time.Second, "it is named", func() bool { return len(w.Manager.Status().Overdue) == 1 })
		require.EqualValues(t, 1, count.overdue.Load())
		require.Equal(t, w.ID(), g.Oracle.Running()[stuck].Worker, "and waited for")
		g.WaitFor(10*time.Second, "it has returned", func() bool { return g.Oracle.Running()[stuck].Worker != w.ID() })
		g.WaitAllRunning(moveLimit)
		t.Logf("runs elsewhere %v after the order, the handler took 8s", time.Since(began))
		require.Empty(t, w.Manager.Status().Overdue)
		require.Zero(t, count.forced.Load())
		g.WaitFor(2*time.Second, "the drain is over", func() bool {
			a, err := op.drain(2*time.Second, w.ID())
			return err == nil && a.State == parti.ControlDone
		})
	}, fast, grouptest.Partitions(40), slow(8*time.Second, stuck), grouptest.Manager(parti.WithDrainTimeout(2*time.Second), parti.WithMetrics(count)))
}

// Row 37: a handler needs 60 s and its deadline is 10 s. The new owner waits for it, or starts under a higher epoch and says so.
func TestHandlerNeedsLongerThanItsDeadline(t *testing.T) {
	natstest.Long(t)
	const stuck = "p-0003"
	for name, timeout := range map[string]time.Duration{"waits": -1, "is forced": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			count := &handoffs{}
			opts := []grouptest.Option{
				fast, grouptest.Partitions(40), slow(time.Minute, stuck),
				grouptest.Manager(parti.WithDrainTimeout(10*time.Second), parti.WithHandoffTimeout(timeout), parti.WithMetrics(count)),
			}
			if timeout > 0 {
				opts = append(opts, grouptest.ToleratesOverlaps())
			}
			grouptest.Bubble(t, func(g *grouptest.Group) {
				op := newOperator(g)
				settled(g, 4)
				before := g.Oracle.Running()[stuck]
				began := time.Now()
				w := taken(g, op, stuck)
				g.WaitFor(65*time.Second, "it runs elsewhere", func() bool { r, ok := g.Oracle.Running()[stuck]; return ok && r.Worker != w.ID() })
				took := time.Since(began)
				after := g.Oracle.Running()[stuck]
				t.Logf("%s: runs elsewhere after %v under epoch %d, before it was %d; %d forced", name, took, after.Epoch, before.Epoch, count.forced.Load())
				require.Greater(t, after.Epoch, before.Epoch)
				if timeout < 0 {
					require.Greater(t, took, 59*time.Second)
					require.LessOrEqual(t, took, time.Minute+moveLimit)
					require.Zero(t, count.forced.Load())
					return
				}
				require.InDelta(t, timeout.Seconds(), took.Seconds(), 0.5)
				require.EqualValues(t, 1, count.forced.Load(), "it says so")
				require.Len(t, g.Oracle.Overlaps(), 1, "for that one partition")
				g.Sleep(time.Minute)
				require.Empty(t, w.Manager.Status().Overdue)
			}, opts...)
		})
	}
}

// Two workers whose partitions are swapped again and again, faster than handlers return, cannot wait for each other: draining waits for
// handlers, never for acquisitions.
func TestSwapsCannotWaitForEachOther(t *testing.T) {
	natstest.Long(t)
	var turn atomic.Int64
	swap := types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
		owners := make([]int, len(in.Partitions))
		for i := range owners {
			owners[i] = (i + int(turn.Load())) % len(in.Workers)
		}
		return owners, nil
	})
	for _, n := range []int{2, 3} {
		grouptest.Bubble(t, func(g *grouptest.Group) {
			turn.Store(0)
			settled(g, n)
			for i := range 25 {
				turn.Add(1)
				ctx, cancel := limited(5 * time.Second)
				require.NoError(t, g.Live()[i%n].Manager.Refresh(ctx))
				cancel()
				g.Sleep(time.Duration(100+137*(i%20)) * time.Millisecond) // shorter and longer than the drains
			}
			took := g.WaitFor(3*time.Second, "nobody waits any more, the slowest handler takes 2.7 s", func() bool {
				waiting := g.Oracle.Idle()
				for _, w := range g.Live() {
					s := w.Manager.Status()
					waiting += s.Assigned + s.Waiting
				}
				return waiting == 0
			})
			t.Logf("%d workers, %d starts: all run %v after the last swap's sleep", n, g.Oracle.Starts(), took)
		}, fast, grouptest.Partitions(12), grouptest.Strategy(swap),
			grouptest.Drain(func(p string) time.Duration { return time.Duration(p[5]-'0') * 300 * time.Millisecond }))
	}
}

// Row 25: the strategy is changed in a rolling deploy. Whichever version leads, every partition is owned at each step.
func TestStrategyChangesInARollingDeploy(t *testing.T) {
	natstest.Long(t)
	for name, stop := range map[string][]parti.StopOption{"with grace": {parti.WithRestartGrace(time.Minute)}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				settled(g, 6)
				strategies := []types.AssignmentStrategy{strategy.ConsistentHash(), strategy.RoundRobin()}
				for round, next := range strategies {
					for _, w := range g.Live() {
						id := w.ID()
						w.Stop(stop...)
						if stop == nil {
							g.WaitAllRunning(time.Second)
						}
						g.StartWith(next, parti.WithWorkerID(id))
						g.WaitFor(time.Minute, "it has its share", func() bool { return g.Oracle.Idle() == 0 && g.Counts()[id] > 0 })
					}
					g.Sleep(10 * time.Second)
					g.WaitAllRunning(time.Second)
					t.Logf("round %d: longest gap so far %v", round, g.Oracle.Gaps().Longest.Length())
				}
				commit, ok := g.Checker.LastCommit()
				require.True(t, ok)
				require.Equal(t, 45, commit.Partitions)
			}, fast, grouptest.Partitions(45))
		})
	}
}
