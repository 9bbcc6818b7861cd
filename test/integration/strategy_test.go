package integration

import (
	"context"
	"errors"
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

func isTaken(err error) bool { return errors.Is(err, parti.ErrWorkerIDTaken) }

// Row 26: whatever a strategy does wrong, the last good assignment stays and the partitions of dead workers are re-homed.
func TestFaultyStrategyHarmsNobody(t *testing.T) {
	natstest.Long(t)
	var never chan struct{}
	faults := map[string]func(ctx context.Context, in types.AssignmentInput) ([]int, error){
		"error": func(context.Context, types.AssignmentInput) ([]int, error) { return nil, errors.New("no idea") },
		"panic": func(context.Context, types.AssignmentInput) ([]int, error) { panic("no idea") },
		"nil":   func(context.Context, types.AssignmentInput) ([]int, error) { return nil, nil },
		"loses": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			return make([]int, len(in.Partitions)-1), nil
		},
		"nobody": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			return filled(len(in.Partitions), types.NoOwner), nil
		},
		"dead": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			return filled(len(in.Partitions), len(in.Workers)), nil
		},
		"changes": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			in.Workers[0].ID = "nobody"
			return nil, nil
		},
		"hangs": func(context.Context, types.AssignmentInput) ([]int, error) { <-never; return nil, nil },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			count := &counter{}
			good := strategy.Sticky()
			grouptest.Bubble(t, func(g *grouptest.Group) {
				never = make(chan struct{}) // of the bubble
				g.T.Cleanup(func() { close(never) })
				g.Start(4)
				g.WaitAllRunning(10 * time.Second)
				running := g.Oracle.Running()
				broken.Store(true)
				dead := g.Follower()
				id := dead.ID()
				dead.Kill()
				g.WaitRunningOn(ttl+6*time.Second, g.Live()...) // a strategy that hangs is given its time first
				for p, r := range running {
					if r.Worker != id {
						require.Equal(t, r.Worker, g.Oracle.Running()[p].Worker, "what the living have stays where it is")
					}
				}
				require.Positive(t, count.failed.Load(), "it is counted")
			}, fast, grouptest.Partitions(30), grouptest.Manager(parti.WithMetrics(count)),
				grouptest.Strategy(types.StrategyFunc(func(ctx context.Context, in types.AssignmentInput) ([]int, error) {
					if broken.Load() {
						return fault(ctx, in)
					}
					return good.Assign(ctx, in)
				})))
		})
	}
}

func filled(n, v int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// counter counts what metrics report.
type counter struct {
	types.NopMetrics
	failed  atomic.Int64
	elected atomic.Int64
}

func (c *counter) StrategyFailed(error) { c.failed.Add(1) }

func (c *counter) LeaderChanged(leading bool) {
	if leading {
		c.elected.Add(1)
	}
}

// Row 33: a leader whose strategy fails again and again gives up the lead, so that another process tries.
func TestLeaderWithAFaultyStrategyStepsDown(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		var broken atomic.Bool
		good := strategy.Sticky()
		bad := types.StrategyFunc(func(ctx context.Context, in types.AssignmentInput) ([]int, error) {
			if broken.Load() {
				panic("broken in this process only")
			}
			return good.Assign(ctx, in)
		})
		g.StartWith(bad)
		g.WaitAllRunning(10 * time.Second)
		first := g.Leader()
		g.Start(2)
		g.WaitFor(10*time.Second, "all have their share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
		broken.Store(true)
		for i := range 8 {
			g.SetPartitions(20*time.Second, grouptest.Numbered(31+i)...)
			g.Sleep(2 * time.Second)
		}
		g.WaitFor(20*time.Second, "another worker leads", func() bool { return g.Leader() != first })
		g.WaitAllRunning(5 * time.Second)
	}, fast, grouptest.Partitions(30))
}

// bursting is metrics whose next call of the leader's loop panics, once it is armed.
type bursting struct {
	types.NopMetrics
	armed atomic.Bool
	burst atomic.Int64
}

func (b *bursting) WorkersSeen(int) {
	if b.armed.Load() {
		b.burst.Add(1)
		panic("broken in this process only")
	}
}

// Row 33: a panic in the loop of the leader ends its term and nothing else: another worker leads, and what runs goes on.
func TestPanicInTheLoopMovesTheLeadOn(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		b := &bursting{}
		g.Start(1, parti.WithMetrics(b))
		g.WaitAllRunning(10 * time.Second)
		first := g.Leader()
		g.Start(2)
		g.WaitFor(10*time.Second, "all have their share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		g.Sleep(5 * time.Second)
		starts := g.Oracle.Starts()
		b.armed.Store(true)
		g.Start(1) // somebody new to be counted
		g.WaitFor(2*leadTerm, "another worker leads", func() bool { return !first.Manager.IsLeader() && g.Leader() != first })
		require.Positive(t, b.burst.Load())
		g.WaitFor(5*time.Second, "the new worker has its share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
		require.Equal(t, starts+7, g.Oracle.Starts(), "a quarter of 30, and nothing else has moved")
		require.ErrorContains(t, first.Manager.Status().LastError, "broken in this process only")
		require.Positive(t, g.Counts()[first.ID()], "it is still a worker")
		g.Sleep(time.Minute)
		g.Start(1)
		g.WaitFor(10*time.Second, "the group goes on", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
	}, fast, grouptest.Partitions(30))
}
