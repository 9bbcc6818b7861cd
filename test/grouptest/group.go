// Package grouptest runs whole groups of workers against a real server, for tests that read as a scenario:
//
//	grouptest.Bubble(t, func(g *grouptest.Group) {
//		g.Start(5)
//		g.WaitAllRunning(5 * time.Second)
//		g.Sleep(12 * time.Second)
//		g.Worker(2).Cut()
//		g.WaitRunningOn(16*time.Second, g.Others(2)...)
//	}, grouptest.Partitions(40))
//
// Every group has two witnesses that trust nothing of the library's. A checker follows the raw commits and heartbeats from
// outside; an oracle is told of every handler that starts and ends. When the scenario is over, the workers are stopped and both are asked: a
// violated promise, an overlap of two runs, or an epoch that did not grow fails the test.
package grouptest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/types"
)

// Namespace is the group's.
const Namespace = "test"

// Group is a group of workers and its witnesses. Its methods are for the test's own goroutine.
type Group struct {
	T       *testing.T
	Source  *Source
	Oracle  *checker.Oracle
	Checker *checker.Checker
	// Env is the server of a bubble; nil for a group over a cluster.
	Env *natstest.Env

	connect func(name string) *natstest.Client
	waitFor func(d time.Duration, what string, cond func() bool)
	heard   func() // waits until the witnesses hear every server
	opts    options

	mu      sync.Mutex
	workers []*Worker
	plain   []*PlainWorker
}

// Bubble runs the scenario in virtual time against one real server. Options follow the scenario.
func Bubble(t *testing.T, scenario func(g *Group), opts ...Option) {
	t.Helper()
	o := newOptions(opts)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t, o)
		g.Env, g.connect, g.waitFor = env, func(name string) *natstest.Client { return env.Connect(name) }, env.WaitFor
		g.run(scenario)
	}, o.bubble...)
}

// RealTime runs the scenario in real time against one real server.
func RealTime(t *testing.T, scenario func(g *Group), opts ...Option) {
	t.Helper()
	o := newOptions(opts)
	env := natstest.Single(t, o.bubble...)
	g := newGroup(t, o)
	g.Env, g.connect, g.waitFor = env, func(name string) *natstest.Client { return env.Connect(name) }, env.WaitFor
	g.run(scenario)
}

// OnCluster runs the scenario in real time against the cluster; worker i is connected to server i modulo the number of servers, the
// witnesses to server 0 first.
func OnCluster(t *testing.T, c *natstest.Cluster, servers int, scenario func(g *Group), opts ...Option) {
	t.Helper()
	g := newGroup(t, newOptions(append([]Option{Manager(parti.WithReplicas(3))}, opts...)))
	n := 0
	g.connect = func(name string) *natstest.Client {
		defer func() { n++ }()
		order := make([]int, servers)
		for i := range order {
			order[i] = (n + i) % servers
		}
		return c.Connect(name, order...)
	}
	g.waitFor = c.WaitFor
	g.heard = func() { c.WaitInterest("_PARTI." + Namespace + ".live.heartbeat.any") }
	g.run(scenario)
}

func newGroup(t *testing.T, o options) *Group {
	ids := make([]string, len(o.partitions))
	for i, p := range o.partitions {
		ids[i] = p.ID()
	}
	return &Group{T: t, Source: NewSource(o.partitions...), Oracle: checker.NewOracle(ids...), opts: o}
}

func (g *Group) run(scenario func(g *Group)) {
	witness := []checker.Option{checker.WithOracle(g.Oracle), checker.Ignoring(g.opts.ignore...)}
	if g.opts.spill {
		witness = append(witness, checker.AllowSpill())
	}
	if g.heard != nil {
		witness = append(witness, checker.OverCluster())
	}
	g.Checker = checker.Attach(g.T, g.connect("witness").Conn(), Namespace, witness...)
	if g.heard != nil {
		g.heard()
	}
	g.Checker.ExpectSource(ids(g.opts.partitions), 0)
	g.T.Cleanup(func() {
		g.stopAll()
		if g.opts.overlaps {
			for _, f := range g.Oracle.EpochFaults() {
				g.T.Errorf("oracle: %v began after %v", f.Later, f.Earlier)
			}
			return
		}
		g.Oracle.Check(g.T)
	})
	scenario(g)
}

func ids(ps []types.Partition) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.ID()
	}
	return out
}

// SetPartitions changes the source; commits must follow within the given time.
func (g *Group) SetPartitions(within time.Duration, ps ...types.Partition) {
	g.Checker.ExpectSource(ids(ps), within)
	g.Oracle.Expect(ids(ps)...)
	g.Source.Set(ps...)
}

// Start starts n workers at the same time and waits until all take part.
func (g *Group) Start(n int, opts ...parti.Option) []*Worker {
	g.T.Helper()
	started := make([]*Worker, n)
	for i := range started {
		started[i] = g.Make(opts...)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, w := range started {
		all.Go(func() { errs[i] = w.Start() })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			g.T.Fatalf("worker %d of %d does not start: %v", i, n, err)
		}
	}
	return started
}

// StartWith starts one worker with a strategy of its own.
func (g *Group) StartWith(s types.AssignmentStrategy, opts ...parti.Option) *Worker {
	g.T.Helper()
	w := g.make(g.Source, s, opts)
	if err := w.Start(); err != nil {
		g.T.Fatal(err)
	}
	return w
}

// StartFrom starts one worker with a source of its own.
func (g *Group) StartFrom(src types.PartitionSource, opts ...parti.Option) *Worker {
	g.T.Helper()
	w := g.make(src, g.opts.strategy, opts)
	if err := w.Start(); err != nil {
		g.T.Fatal(err)
	}
	return w
}

// Make makes a worker that is not started.
func (g *Group) Make(opts ...parti.Option) *Worker {
	g.T.Helper()
	return g.make(g.Source, g.opts.strategy, opts)
}

func (g *Group) make(src types.PartitionSource, s types.AssignmentStrategy, opts []parti.Option) *Worker {
	g.T.Helper()
	g.mu.Lock()
	n := len(g.workers)
	g.mu.Unlock()
	w := &Worker{g: g, runs: map[oracleRun]struct{}{}, Client: g.connect(fmt.Sprintf("w%03d", n))}
	all := append([]parti.Option{
		parti.WithNamespace(Namespace), parti.WithStorage(jetstream.MemoryStorage), parti.WithHandler(w.handle),
	}, g.opts.manager...)
	m, err := parti.NewManager(w.Client.JS(), src, s, append(all, opts...)...)
	if err != nil {
		g.T.Fatalf("worker %d: %v", n, err)
	}
	w.Manager = m
	g.mu.Lock()
	g.workers = append(g.workers, w)
	g.mu.Unlock()
	return w
}

// Worker returns the nth worker that was made.
func (g *Group) Worker(n int) *Worker { return g.workers[n] }

// Live returns the workers that were neither stopped nor killed.
func (g *Group) Live() []*Worker {
	return slices.DeleteFunc(slices.Clone(g.workers), func(w *Worker) bool { return w.over() })
}

// Others returns the live workers but the nth.
func (g *Group) Others(n int) []*Worker {
	return slices.DeleteFunc(g.Live(), func(w *Worker) bool { return w == g.workers[n] })
}

// Leader waits for a worker that leads and returns it.
func (g *Group) Leader() *Worker {
	g.T.Helper()
	var leader *Worker
	g.waitFor(time.Minute, "a leader", func() bool {
		for _, w := range g.Live() {
			if w.Manager.IsLeader() {
				leader = w
				return true
			}
		}
		return false
	})
	return leader
}

// Follower returns a live worker that does not lead.
func (g *Group) Follower() *Worker {
	g.T.Helper()
	leader := g.Leader()
	for _, w := range g.Live() {
		if w != leader {
			return w
		}
	}
	g.T.Fatal("no follower")
	return nil
}

// Sleep lets time pass.
func (g *Group) Sleep(d time.Duration) { time.Sleep(d) }

// WaitFor waits until cond holds, and ends the test if it does not within d.
func (g *Group) WaitFor(d time.Duration, what string, cond func() bool) time.Duration {
	g.T.Helper()
	began := time.Now()
	g.waitFor(d, what, cond)
	return time.Since(began)
}

// WaitAllRunning waits until every partition of the source runs exactly once, as the handlers say, and returns how long it took.
func (g *Group) WaitAllRunning(d time.Duration) time.Duration {
	g.T.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := g.Oracle.WaitAllRunning(ctx); err != nil {
		g.T.Fatalf("%v\n%s", err, g.Describe())
	}
	return time.Since(began)
}

// WaitRunningOn waits until every partition runs on one of these workers, and on no other.
func (g *Group) WaitRunningOn(d time.Duration, workers ...*Worker) time.Duration {
	g.T.Helper()
	return g.WaitFor(d, "every partition runs on the expected workers", func() bool {
		if g.Oracle.Idle() > 0 {
			return false
		}
		names := map[string]bool{}
		for _, w := range workers {
			names[w.ID()] = true
		}
		for _, r := range g.Oracle.Running() {
			if !names[r.Worker] {
				return false
			}
		}
		return true
	})
}

// Counts returns how many partitions each worker runs.
func (g *Group) Counts() map[string]int {
	counts := map[string]int{}
	for _, w := range g.Live() {
		counts[w.ID()] = 0
	}
	for _, r := range g.Oracle.Running() {
		counts[r.Worker]++
	}
	return counts
}

// Spread returns the difference between the most and the fewest partitions of a live worker.
func (g *Group) Spread() int {
	var all []int
	for _, n := range g.Counts() {
		all = append(all, n)
	}
	return slices.Max(all) - slices.Min(all)
}

// Describe says what each worker thinks, for messages of failures.
func (g *Group) Describe() string {
	var out string
	for i, w := range g.workers {
		s := w.Manager.Status()
		out += fmt.Sprintf("worker %d: over=%v %+v\n", i, w.over(), s)
		for _, p := range w.Manager.Partitions() {
			if p.State != types.OwnershipRunning {
				out += fmt.Sprintf("  %+v\n", p)
			}
		}
	}
	if c, ok := g.Checker.LastCommit(); ok {
		out += fmt.Sprintf("last commit: %+v\n", c)
	}
	return out
}

// stopAll ends what is left: gracefully where the network allows it.
func (g *Group) stopAll() {
	var all sync.WaitGroup
	for _, w := range g.plain {
		w.Kill()
	}
	for _, w := range g.workers {
		if !w.over() {
			w.Client.Gate().Heal()
		}
		all.Go(w.finish)
	}
	all.Wait()
}
