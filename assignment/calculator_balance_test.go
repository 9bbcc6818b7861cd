package assignment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// gauges remembers what a calculator measured last.
type gauges struct {
	types.NopMetrics
	mu      sync.Mutex
	parked  int
	behind  int
	damped  int
	evicted []string
	labels  map[string][2]int
}

func (g *gauges) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *gauges) PartitionsParked(n int)  { g.set(func() { g.parked = n }) }
func (g *gauges) WorkersBehind(n int)     { g.set(func() { g.behind = n }) }
func (g *gauges) WorkersDamped(n int)     { g.set(func() { g.damped = n }) }
func (g *gauges) WorkerEvicted(id string) { g.set(func() { g.evicted = append(g.evicted, id) }) }
func (g *gauges) LabelPool(l string, w, p int) {
	g.set(func() {
		if g.labels == nil {
			g.labels = map[string][2]int{}
		}
		g.labels[l] = [2]int{w, p}
	})
}

func (g *gauges) get(f func() any) (v any) {
	g.set(func() { v = f() })
	return v
}

func (e *calcEnv) addPartitions(ps ...types.Partition) {
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	e.source.list = append(slices.Clone(e.source.list), ps...)
}

func ofLabel(label string, n int) (ps []types.Partition) {
	for i := range n {
		ps = append(ps, types.Partition{Keys: []string{label, fmt.Sprint(i)}, Label: label})
	}
	return ps
}

// counts returns how many partitions each worker has, and how many are parked.
func (e *calcEnv) counts() (map[string]int, int) {
	_, s := e.commit()
	n := map[string]int{}
	for _, w := range e.owners(s) {
		n[w]++
	}
	return n, len(s.Parked)
}

func reasons(s *plan.State) map[string]int {
	n := map[string]int{}
	for _, p := range s.Parked {
		n[p.Reason]++
	}
	return n
}

// A label's partitions wait, parked, for the grace, then go to others, and come back with the label. A new leader does not start
// the grace over for what has spilled.
func TestLabelSpillGrace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.addPartitions(ofLabel("gpu", 4)...)
		grace := func(c *Config) { c.LabelSpillGrace = 40 * time.Second }
		g := &gauges{}
		metrics := func(c *Config) { c.Metrics = g }
		e.fleet.join(ids(3)...)
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"gpu"} }, "w-002")
		e.start(grace, metrics)
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		n, parked := e.counts()
		require.Equal(t, map[string]int{"w-000": 5, "w-001": 5, "w-002": 4}, n)
		require.Zero(t, parked)
		e.fleet.ack(first.Version)
		e.quiet(20 * time.Second)

		e.fleet.leave("w-002")
		second, s, _ := e.awaitCommit(first.Version, time.Second)
		require.Equal(t, map[string]int{"no worker carries label gpu": 4}, reasons(s))
		require.Equal(t, 4, g.get(func() any { return g.parked }))
		require.Equal(t, [2]int{0, 4}, g.get(func() any { return g.labels["gpu"] }))
		pools, waiting, ok := e.calc.LabelSnapshot()
		require.True(t, ok)
		require.Equal(t, map[string]int{"gpu": 0}, pools)
		require.Equal(t, map[string]int{"gpu": 4}, waiting)
		e.fleet.ack(second.Version)
		e.quiet(38 * time.Second)

		third, s, _ := e.awaitCommit(second.Version, 3*time.Second)
		require.Equal(t, types.LifecycleLabels, third.Lifecycle)
		require.Empty(t, s.Parked)
		e.fleet.ack(third.Version)

		e.start(grace, metrics) // another leader
		e.quiet(time.Minute)

		e.fleet.join("w-003")
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"gpu"} }, "w-003")
		_, s, _ = e.awaitCommit(third.Version, 5*time.Second)
		for p, w := range e.owners(s) {
			require.Equal(t, p[:1] == "g", w == "w-003", "%s is on %s", p, w)
		}
	})
}

// Nor does one that is asked for a refresh before it has decided anything.
func TestRefreshAtATakeoverKeepsWhatHasSpilled(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.addPartitions(ofLabel("gpu", 4)...)
		grace := func(c *Config) { c.LabelSpillGrace = 40 * time.Second }
		e.fleet.join(ids(3)...)
		e.start(grace)
		first, s, _ := e.awaitCommit(0, 10*time.Second)
		require.Len(t, s.Parked, 4)
		e.fleet.ack(first.Version)
		second, s, _ := e.awaitCommit(first.Version, time.Minute)
		require.Empty(t, s.Parked)
		e.fleet.ack(second.Version)
		e.quiet(30 * time.Second)

		e.start(grace) // another leader
		require.NoError(t, e.calc.Refresh(t.Context()))
		e.quiet(time.Minute)
		now, _ := e.commit()
		require.Equal(t, second.Version, now.Version)
	})
}

// A label that changes behind a live ID moves the partitions with it.
func TestLabelChangeBehindALiveID(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.addPartitions(ofLabel("gpu", 2)...)
		e.fleet.join(ids(3)...)
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"gpu"} }, "w-001", "w-002")
		e.start()
		first, s, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(first.Version)
		e.quiet(20 * time.Second)
		before := e.owners(s)
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = nil }, "w-002")
		second, s, _ := e.awaitCommit(first.Version, 5*time.Second)
		after := e.owners(s)
		require.Equal(t, "w-001", after["gpu.0"])
		require.Equal(t, "w-001", after["gpu.1"])
		require.Equal(t, 1+5, moves(before, after), "one must go, and five are the other's fair share")
		e.fleet.ack(second.Version)
		e.quiet(time.Minute)
	})
}

// Unlabelled partitions are for unlabelled workers, unless there are none; or for all.
func TestUnlabeledPolicy(t *testing.T) {
	for policy, want := range map[types.UnlabeledPolicy]map[string]int{
		types.UnlabeledDedicated: {"w-000": 10}, types.UnlabeledShared: {"w-000": 5, "w-001": 5},
	} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			e := newCalcEnv(t, env)
			e.fleet.join("w-000", "w-001")
			e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"gpu"} }, "w-001")
			e.start(func(c *Config) { c.UnlabeledPolicy = policy })
			first, _, _ := e.awaitCommit(0, 10*time.Second)
			n, _ := e.counts()
			require.Equal(t, want, n, policy)
			e.fleet.ack(first.Version)
			e.fleet.leave("w-000")
			e.awaitCommit(first.Version, time.Second)
			n, _ = e.counts()
			require.Equal(t, map[string]int{"w-001": 10}, n, policy)
		})
	}
}

// Row 38: what exceeds the capacity of all is parked and reported, nothing is written in steady state, and it is placed when there is room.
func TestCapacityParksAndPlaces(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		g := &gauges{}
		e.fleet.join("w-000", "w-001")
		limit := func(n int) func(*types.Heartbeat) { return func(h *types.Heartbeat) { h.Capacity.Partitions = n } }
		e.fleet.change(limit(3), "w-000", "w-001")
		e.start(func(c *Config) { c.Metrics = g })
		first, s, _ := e.awaitCommit(0, 10*time.Second)
		require.Equal(t, map[string]int{"no worker has room": 4}, reasons(s))
		require.Equal(t, 4, g.get(func() any { return g.parked }))
		require.Equal(t, 4, e.calc.Status().Parked)
		e.fleet.ack(first.Version)
		e.quiet(10 * time.Minute)
		before := e.owners(s)

		e.fleet.change(limit(5), "w-001")
		second, s, took := e.awaitCommit(first.Version, 5*time.Second)
		require.Less(t, took, 3*time.Second)
		require.Equal(t, map[string]int{"no worker has room": 2}, reasons(s))
		require.Zero(t, moves(before, e.owners(s)))
		e.fleet.ack(second.Version)

		e.fleet.join("w-002") // right after: what is parked does not wait for the cooldown
		_, s, took = e.awaitCommit(second.Version, 5*time.Second)
		require.Less(t, took, 3*time.Second)
		require.Empty(t, s.Parked)
		require.Zero(t, g.get(func() any { return g.parked }))
	})
}

// A worker that heartbeats and does not follow is reported, and in the end evicted; one that drains, or does not speak the protocol, is not.
func TestAudit(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		g := &gauges{}
		checks := 0
		e.fleet.join(ids(6)...)
		e.fleet.change(func(h *types.Heartbeat) { h.Capabilities = types.CapAckV1 }, "w-004")
		e.fleet.change(func(h *types.Heartbeat) { h.Capabilities = 0 }, "w-005")
		e.start(func(c *Config) {
			c.Metrics, c.HandoffTimeout = g, 45*time.Second
			c.LeaderCheck = func(context.Context) error { checks++; return nil }
		})
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(first.Version)
		e.quiet(time.Minute)
		require.Empty(t, e.calc.Status().Behind)

		// Behind as well, and not evicted: one without the handoff, and one that does not speak the protocol.
		e.fleet.stuck("w-001", "w-002", "w-004", "w-005")
		e.fleet.change(func(h *types.Heartbeat) { h.Unreturned = []types.Run{{Partition: "p0001", Epoch: 1}} }, "w-002")
		e.fleet.leave("w-003")
		second, _, _ := e.awaitCommit(first.Version, time.Second)
		e.fleet.ack(second.Version)
		began := time.Now()
		e.WaitFor(2*time.Minute, "reported", func() bool { return len(e.calc.Status().Behind) > 0 })
		require.InDelta(t, 37, time.Since(began).Seconds(), 9, "two TTLs, and up to one until the next look")
		require.Equal(t, []string{"w-001"}, e.calc.Status().Behind)
		require.Equal(t, 1, g.get(func() any { return g.behind }))
		e.WaitFor(2*time.Minute, "evicted", func() bool { return g.get(func() any { return len(g.evicted) }) == 1 })
		require.InDelta(t, 82, time.Since(began).Seconds(), 9, "five TTLs, and up to one until the next look")
		time.Sleep(20 * time.Second) // the grace for a key that is gone
		_, s := e.commit()
		require.NotContains(t, workersOf(s), "w-001")
		n, _ := e.counts()
		require.NotZero(t, n["w-002"], "who drains is not behind")
		require.NotZero(t, n["w-004"])
		require.NotZero(t, n["w-005"])
		require.Equal(t, []string{"w-001"}, g.get(func() any { return g.evicted }))
		require.Equal(t, 1, checks, "leadership is proved before the key is deleted")
	})
}

// Without a proof of leadership nobody is evicted.
func TestAuditNeedsLeadership(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		g := &gauges{}
		e.fleet.join(ids(3)...)
		e.start(func(c *Config) {
			c.Metrics = g
			c.LeaderCheck = func(context.Context) error { return types.ErrLeadershipLost }
		})
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(first.Version)
		e.fleet.stuck("w-001")
		e.fleet.leave("w-002")
		second, _, _ := e.awaitCommit(first.Version, time.Second)
		e.fleet.ack(second.Version)
		e.quiet(5 * time.Minute)
		require.Empty(t, g.get(func() any { return g.evicted }))
		require.Equal(t, []string{"w-001"}, e.calc.Status().Behind)
	})
}
