package integration

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

var (
	noHandler   = parti.WithHandler(nil)
	coordinator = []parti.Option{parti.WithRole(parti.RoleCoordinator), noHandler}
	follower    = parti.WithRole(parti.RoleFollower)
)

// A coordinator leads, has an ID of its own kind, and counts for nothing that is about workers.
func TestCoordinatorLeadsAndGetsNothing(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		c := g.Start(1, coordinator...)[0]
		require.Equal(t, "coordinator-0", c.ID())
		require.True(t, g.Leader() == c)
		g.Sleep(30 * time.Second)
		_, committed := g.Checker.LastCommit()
		require.False(t, committed, "there is nobody to give anything to")

		workers := g.Start(3, follower)
		took := g.WaitRunningOn(10*time.Second, workers...)
		require.Less(t, took, 300*time.Millisecond, "three are expected, and the coordinator is none of them")
		require.Zero(t, g.Counts()[c.ID()])
		ctx, cancel := limited(time.Second)
		defer cancel()
		require.NoError(t, c.Manager.WaitReady(ctx))
		require.Equal(t, parti.StateStable, c.Manager.State())
		for _, w := range workers {
			require.Equal(t, c.ID(), w.Manager.Status().Leader)
			require.Equal(t, parti.RoleFollower, w.Manager.Status().Role)
		}
		before := g.Oracle.Starts()
		g.Sleep(time.Minute) // audits, listings
		require.Equal(t, before, g.Oracle.Starts())
		require.Empty(t, c.Manager.Status().WorkersBehind)

		w := workers[1]
		w.Kill()
		require.LessOrEqual(t, g.WaitRunningOn(10*time.Second, workers[0], workers[2]), ttl+announced)
	}, fast, grouptest.Manager(parti.WithExpectedWorkers(3)))
}

// A coordinator that dies or stops is replaced by another one; no partition moves, and the group is led as before.
func TestCoordinatorIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(w *grouptest.Worker)
		within time.Duration
	}{
		"crash": {(*grouptest.Worker).Kill, 3*time.Second + announced},
		"stop":  {func(w *grouptest.Worker) { w.Stop() }, announced},
	} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				pair := g.Start(2, coordinator...)
				g.Start(3, follower)
				g.WaitAllRunning(10 * time.Second)
				before, commits := g.Oracle.Starts(), version(g)
				leader := g.Leader()
				other := pair[0]
				if other == leader {
					other = pair[1]
				}
				c.end(leader)
				took := g.WaitFor(10*time.Second, "the other leads", func() bool { return other.Manager.IsLeader() })
				require.LessOrEqual(t, took, c.within)
				g.Sleep(20 * time.Second)
				require.Equal(t, before, g.Oracle.Starts(), "no partition moves")
				require.Equal(t, commits, version(g), "and there is no commit for it")

				dead := g.Worker(2)
				dead.Kill()
				g.WaitRunningOn(ttl+2*announced, g.Worker(3), g.Worker(4))
			}, fast, grouptest.Partitions(30))
		})
	}
}

func version(g *grouptest.Group) int64 {
	c, ok := g.Checker.LastCommit()
	if !ok {
		return 0
	}
	return c.Version
}

// A worker that never leads does not even when it is alone. That nobody leads is to be seen, and is over when somebody does.
func TestFollowersNeverLead(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := g.Start(1, follower)[0]
		g.Sleep(2 * time.Second)
		require.Equal(t, parti.StateWaiting, w.Manager.State(), "a leader may be about to come")
		g.WaitFor(5*time.Second, "it says that nobody leads", func() bool { return w.Manager.State() == parti.StateDegraded })
		require.Contains(t, w.Manager.Status().Degraded, "nobody leads the group")
		require.False(t, w.Manager.Status().Ready())
		g.Sleep(time.Minute)
		require.False(t, w.Manager.IsLeader())
		_, committed := g.Checker.LastCommit()
		require.False(t, committed)

		c := g.Start(1, coordinator...)[0]
		g.WaitRunningOn(5*time.Second, w)
		require.Equal(t, parti.StateStable, w.Manager.State())

		c.Stop()
		g.WaitFor(15*time.Second, "nobody leads again", func() bool { return w.Manager.State() == parti.StateDegraded })
		require.Zero(t, g.Oracle.Idle(), "what runs goes on")
	}, fast)
}

// All three roles together: who may lead is a coordinator or a worker, and only workers and followers have partitions.
func TestMixedRoles(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		c := g.Start(1, coordinator...)[0]
		g.Leader()
		w := g.Start(1)[0]
		f := g.Start(2, follower)
		g.WaitRunningOn(10*time.Second, w, f[0], f[1])
		require.True(t, g.Leader() == c)
		c.Kill()
		g.WaitFor(10*time.Second, "the worker leads", func() bool { return w.Manager.IsLeader() })
		f[0].Stop()
		g.WaitRunningOn(5*time.Second, w, f[1])
		c2 := g.Start(1, coordinator...)[0]
		w.Stop()
		g.WaitRunningOn(5*time.Second, f[1])
		require.True(t, g.Leader() == c2)
	}, fast)
}

// A coordinator that is cut off for longer than its lease comes back under a new incarnation, and may lead again.
func TestCoordinatorSurvivesFencing(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		c := g.Start(1, coordinator...)[0]
		w := g.Start(2, follower)
		g.WaitRunningOn(10*time.Second, w...)
		before := g.Oracle.Starts()
		first := c.Manager.Status().Incarnation
		c.Cut()
		g.Sleep(10 * time.Second)
		require.False(t, c.Manager.IsLeader())
		c.Heal()
		g.WaitFor(20*time.Second, "it leads again", func() bool { return c.Manager.IsLeader() })
		require.NotEqual(t, first, c.Manager.Status().Incarnation)
		require.Equal(t, before, g.Oracle.Starts())
		w[0].Stop()
		g.WaitRunningOn(5*time.Second, w[1])
	}, fast)
}

// What a coordinator cannot do is refused, in words.
func TestCoordinatorIsConfigured(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		js := g.Env.Connect("x").JS()
		handler := parti.WithHandler(func(context.Context, parti.Ownership) error { return nil })
		for name, opt := range map[string]parti.Option{
			"handler":  handler,
			"hooks":    parti.WithHooks(parti.Hooks{OnLost: func(parti.Ownership) {}}),
			"labels":   parti.WithLabels("gpu"),
			"capacity": parti.WithCapacity(3, 0),
		} {
			_, err := parti.NewManager(js, g.Source, strategy.Sticky(), parti.WithRole(parti.RoleCoordinator), opt)
			require.ErrorIs(t, err, parti.ErrInvalidConfig, name)
			require.ErrorContains(t, err, "parti.RoleCoordinator is given no partitions", name)
		}
		_, err := parti.NewManager(js, g.Source, strategy.Sticky(), parti.WithRole("boss"))
		require.ErrorContains(t, err, "use parti.RoleWorker, parti.RoleCoordinator or parti.RoleFollower")
		_, err = parti.NewManager(js, g.Source, strategy.Sticky(), parti.WithMaxWorkers(-1))
		require.ErrorContains(t, err, "MaxWorkers is -1")

		g.Start(2, follower)
		c := g.Start(1, coordinator...)[0]
		g.WaitAllRunning(10 * time.Second)
		_, err = newOperator(g).drain(5*time.Second, c.ID())
		require.ErrorIs(t, err, parti.ErrRefused)
		require.ErrorContains(t, err, "is a coordinator")
	}, fast)
}

// Workers beyond the limit stand by, follow, and take over when one leaves or dies; who has partitions keeps them.
func TestMaxWorkers(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		first := g.Start(3)
		g.WaitRunningOn(10*time.Second, first...)
		g.Sleep(5 * time.Second)
		before := g.Oracle.Starts()
		more := g.Start(2, parti.WithWorkerPool("a")) // IDs before those of the first
		slices.SortFunc(more, func(a, b *grouptest.Worker) int { return strings.Compare(a.ID(), b.ID()) })
		g.WaitFor(10*time.Second, "they stand by", func() bool { return len(g.Leader().Manager.Status().WorkersStandingBy) == 2 })
		g.WaitFor(10*time.Second, "they are ready", func() bool { return more[0].Manager.Status().Ready() && more[1].Manager.Status().Ready() })
		g.Sleep(10 * time.Second)
		require.Equal(t, before, g.Oracle.Starts(), "nothing moves")
		require.Equal(t, []string{more[0].ID(), more[1].ID()}, g.Leader().Manager.Status().WorkersStandingBy)

		first[1].Stop()
		require.Less(t, g.WaitRunningOn(5*time.Second, first[0], first[2], more[0]), 200*time.Millisecond, "the first of them takes over at once")
		require.Equal(t, []string{more[1].ID()}, g.Leader().Manager.Status().WorkersStandingBy)
		first[2].Kill()
		g.WaitRunningOn(ttl+2*announced+3*time.Second, first[0], more[0], more[1])
		g.WaitFor(10*time.Second, "balance", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })

		g.Sleep(5 * time.Second)
		g.Start(1)
		g.Sleep(5 * time.Second)
		leader := g.Leader()
		leader.Stop() // a new leader does not take who stood by for one that was held back
		if leader == more[0] {
			more[0] = more[1]
		}
		require.Less(t, g.WaitFor(10*time.Second, "the one that stood by takes over", func() bool {
			return g.Oracle.Idle() == 0 && g.Spread() <= 1
		}), time.Second)
		g.Sleep(5 * time.Second)
		g.Start(1)
		g.Sleep(5 * time.Second)
		more[0].Stop(parti.WithRestartGrace(5 * time.Second))
		g.Sleep(4 * time.Second)
		require.Equal(t, 10, g.Oracle.Idle(), "its place is kept")
		g.WaitFor(5*time.Second, "the one that stands by has it", func() bool { return g.Oracle.Idle() == 0 && len(g.Live()) == 3 })
	}, fast, grouptest.Partitions(30), grouptest.Manager(parti.WithMaxWorkers(3)))
}

// The limit is the leader's; a drained worker makes room.
func TestMaxWorkersAndDrain(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		g.Start(1, append([]parti.Option{parti.WithMaxWorkers(1)}, coordinator...)...)
		w := g.Start(2, follower)
		g.WaitFor(10*time.Second, "one has all", func() bool { return g.Oracle.Idle() == 0 })
		active, spare := w[0], w[1]
		if g.Counts()[active.ID()] == 0 {
			active, spare = spare, active
		}
		require.Zero(t, g.Counts()[spare.ID()])
		_, err := op.drain(10*time.Second, active.ID())
		require.NoError(t, err, "the other one can take over")
		g.WaitRunningOn(time.Second, spare)
		op.undrain(active.ID())
		g.Sleep(10 * time.Second)
		require.Zero(t, g.Counts()[active.ID()], "who has partitions keeps them")
	}, fast)
}

// heardHooks writes down what is told about the lead.
type heardHooks struct {
	mu  sync.Mutex
	all []any
}

type (
	elected  struct{ parti.Leadership }
	stepping struct{ parti.Leadership }
	lost     struct{ parti.Leadership }
	started  struct{ parti.Rebalance }
	ended    struct{ parti.Rebalance }
)

func (h *heardHooks) add(v any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, v)
}

func (h *heardHooks) get() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]any(nil), h.all...)
}

func (h *heardHooks) hooks() parti.Hooks {
	return parti.Hooks{
		OnElected:          func(l parti.Leadership) { h.add(elected{l}) },
		OnSteppingDown:     func(l parti.Leadership) { h.add(stepping{l}) },
		OnLeadershipLost:   func(l parti.Leadership) { h.add(lost{l}) },
		OnRebalanceStarted: func(r parti.Rebalance) { h.add(started{r}) },
		OnRebalanceEnded:   func(r parti.Rebalance) { h.add(ended{r}) },
	}
}

// judge checks the grammar: elected, any number of started and ended in turn, perhaps stepping down, lost.
func (h *heardHooks) judge(t *testing.T) (terms int) {
	t.Helper()
	var term uint64
	var generation int64
	open, steps := false, false
	for i, v := range h.get() {
		switch v := v.(type) {
		case elected:
			require.Zero(t, term, "%d: %+v", i, v)
			require.NoError(t, v.Reason)
			term, steps = v.Term, false
			terms++
		case started:
			require.False(t, open)
			require.Equal(t, term, v.Term)
			require.GreaterOrEqual(t, v.Generation, generation)
			require.NotEmpty(t, v.Reason)
			open, generation = true, v.Generation
		case ended:
			require.True(t, open)
			require.Equal(t, term, v.Term)
			require.GreaterOrEqual(t, v.Generation, generation)
			open, generation = false, v.Generation
		case stepping:
			require.Equal(t, term, v.Term)
			require.Error(t, v.Reason)
			require.False(t, steps)
			steps = true
		case lost:
			require.False(t, open)
			require.Equal(t, term, v.Term)
			require.Error(t, v.Reason)
			term = 0
		}
	}
	require.Zero(t, term, "every term has its end")
	return terms
}

// What the hooks tell about the lead is in order, complete, and names generations, moves and reasons.
func TestLeadershipHooks(t *testing.T) {
	h := &heardHooks{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := g.Start(1, parti.WithHooks(h.hooks()))[0]
		g.WaitAllRunning(10 * time.Second)
		v := version(g)
		g.Start(1)
		g.WaitFor(10*time.Second, "the new one has its share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
		g.Sleep(time.Second)
		all := h.get()
		last, ok := all[len(all)-1].(ended)
		require.True(t, ok, "%+v", all)
		require.Equal(t, all[len(all)-2].(started).Generation, v)
		require.Equal(t, version(g), last.Generation)
		require.Equal(t, "planned_scale", last.Reason)
		require.Equal(t, 10, last.Moved)
		require.NoError(t, last.Err)
		require.Positive(t, last.Took)

		w.Cut() // lost by its own clock, then fenced
		g.Sleep(10 * time.Second)
		require.IsType(t, lost{}, h.get()[len(h.get())-1])
		w.Heal()
		g.WaitAllRunning(20 * time.Second)
		g.Worker(1).Stop()
		g.WaitFor(10*time.Second, "it leads again", w.Manager.IsLeader)
		w.Stop()
		all = h.get()
		require.ErrorIs(t, all[len(all)-1].(lost).Reason, parti.ErrStopped)
		require.ErrorIs(t, all[len(all)-2].(stepping).Reason, parti.ErrStopped)
		require.Equal(t, 2, h.judge(t))
	}, fast)
}

// A leader that cannot do its work says why it steps down.
func TestSteppingDownSaysWhy(t *testing.T) {
	h := &heardHooks{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := g.StartWith(broken{}, parti.WithHooks(h.hooks()), parti.WithStorage(jetstream.MemoryStorage))
		g.WaitFor(5*time.Minute, "it steps down", func() bool {
			for _, v := range h.get() {
				if s, ok := v.(stepping); ok {
					require.ErrorContains(t, s.Reason, "strategy failed")
					return true
				}
			}
			return false
		})
		w.Stop()
		h.judge(t)
	}, fast)
}

type broken struct{}

func (broken) Assign(context.Context, types.AssignmentInput) ([]int, error) {
	return nil, context.DeadlineExceeded
}
