package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// operator gives orders from outside of the group.
type operator struct {
	g  *grouptest.Group
	js jetstream.JetStream
}

func newOperator(g *grouptest.Group) operator { return operator{g, g.Env.Connect("operator").JS()} }

func limited(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func (o operator) drain(within time.Duration, worker string, opts ...parti.ControlOption) (parti.ControlAnswer, error) {
	ctx, cancel := limited(within)
	defer cancel()
	return parti.Drain(ctx, o.js, grouptest.Namespace, worker, opts...)
}

func (o operator) undrain(worker string) {
	o.g.T.Helper()
	ctx, cancel := limited(5 * time.Second)
	defer cancel()
	a, err := parti.Undrain(ctx, o.js, grouptest.Namespace, worker)
	require.NoError(o.g.T, err)
	require.Equal(o.g.T, parti.ControlDone, a.State)
}

func (o operator) evict(within time.Duration, worker string) (parti.ControlAnswer, error) {
	ctx, cancel := limited(within)
	defer cancel()
	o.g.Checker.AllowOperator()
	return parti.EvictWorker(ctx, o.js, grouptest.Namespace, worker)
}

func (o operator) evictPartition(within time.Duration, worker, partition string) (parti.ControlAnswer, error) {
	ctx, cancel := limited(within)
	defer cancel()
	return parti.EvictPartition(ctx, o.js, grouptest.Namespace, worker, types.NewPartition(partition))
}

// settled starts n named workers and waits until nothing changes any more.
func settled(g *grouptest.Group, n int) {
	g.T.Helper()
	named(g, n)
	g.WaitAllRunning(10 * time.Second)
	g.Sleep(5 * time.Second)
}

// ownTime is how long handlers of TestDrain need to return.
const ownTime = 20 * time.Millisecond

// A worker is drained, at once or one partition after the other: only its own partitions move, and it stays up with nothing.
func TestDrain(t *testing.T) {
	for name, opts := range map[string][]parti.ControlOption{"all at once": nil, "one by one": {parti.WithOneByOne()}} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				op := newOperator(g)
				settled(g, 4)
				before, starts := places(g), g.Oracle.Starts()
				w := g.Follower()
				id := w.ID()
				stop := make(chan struct{})
				var most int
				var watch sync.WaitGroup
				watch.Go(func() { // how many of its partitions are down at a time
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
							most = max(most, g.Oracle.Idle())
						}
					}
				})
				began := time.Now()
				answer, err := op.drain(time.Minute, id, opts...)
				require.NoError(t, err)
				close(stop)
				watch.Wait()
				require.Equal(t, parti.ControlDone, answer.State)
				took, turns := time.Since(began), 1
				t.Logf("%s: %d partitions in %v, at most %d down at a time", name, held(before, id), took, most)
				if len(opts) > 0 {
					turns = held(before, id)
					require.Equal(t, 1, most, "one after the other")
				}
				took += g.WaitAllRunning(time.Second)
				require.LessOrEqual(t, took, time.Duration(turns)*(moveLimit+ownTime), "each turn takes a move and the handler's own time")
				require.Equal(t, held(before, id), g.Oracle.Starts()-starts, "nothing else moves")
				require.Zero(t, g.Counts()[id])
				require.True(t, w.Manager.Status().Ready(), "it stays up")
				g.Start(1)
				g.Sleep(5 * time.Second)
				require.Zero(t, g.Counts()[id], "it is no target")
				op.undrain(id)
				g.WaitFor(time.Second, "it has its share again", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
			}, fast, grouptest.Partitions(40), grouptest.Drain(func(string) time.Duration { return ownTime }))
		})
	}
}

// An order binds every later leader, whether the leader that took it crashes, leaves, or is the worker that is drained.
func TestDrainSurvivesAChangeOfLeader(t *testing.T) {
	natstest.Long(t)
	for name, change := range map[string]func(w *grouptest.Worker){"crash": (*grouptest.Worker).Kill, "leave": func(w *grouptest.Worker) { w.Stop() }} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				op := newOperator(g)
				settled(g, 5)
				leader, w := g.Leader(), g.Follower()
				id := w.ID()
				accepted, err := op.drain(time.Minute, id, parti.WithOneByOne(), parti.WithoutWaiting())
				require.NoError(t, err)
				require.Equal(t, parti.ControlAccepted, accepted.State)
				g.Sleep(300 * time.Millisecond) // in the midst of it
				require.Positive(t, g.Counts()[id])
				change(leader)
				g.WaitFor(30*time.Second, "the next leader goes on", func() bool { return g.Counts()[id] == 0 })
				g.WaitAllRunning(5 * time.Second)
				again, err := op.drain(10*time.Second, id, parti.WithOneByOne())
				require.NoError(t, err)
				require.NotEqual(t, leader.ID(), again.By)
				_, err = op.drain(10*time.Second, g.Leader().ID())
				require.NoError(t, err, "a leader drains itself and goes on leading")
				require.Zero(t, g.Counts()[g.Leader().ID()])
				g.WaitAllRunning(time.Second)
				w.Stop()
				g.Start(1, parti.WithWorkerID(id))
				g.Sleep(10 * time.Second)
				require.Zero(t, g.Counts()[id], "it is drained over its restart, too")
			}, fast, grouptest.Partitions(40), grouptest.Drain(func(string) time.Duration { return 100 * time.Millisecond }))
		})
	}
}

// What cannot be done is refused, with the reason.
func TestOrdersAreRefused(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 2)
		const within = 5 * time.Second
		refused := func(answer parti.ControlAnswer, err error, why string) {
			t.Helper()
			require.ErrorIs(t, err, parti.ErrRefused)
			require.ErrorContains(t, err, why)
			require.Equal(t, parti.ControlRefused, answer.State)
			require.NotEmpty(t, answer.By)
		}
		for _, act := range []func(time.Duration, string) (parti.ControlAnswer, error){
			func(d time.Duration, id string) (parti.ControlAnswer, error) { return op.drain(d, id) }, op.evict,
		} {
			a, err := act(within, "nobody")
			refused(a, err, "unknown worker")
		}
		a, err := op.evictPartition(within, "pod-0", "nothing")
		refused(a, err, "unknown partition")
		theirs := ""
		for p, at := range places(g) {
			if at == "pod-1" {
				theirs = p
			}
		}
		a, err = op.evictPartition(within, "pod-0", theirs)
		refused(a, err, "pod-1 does")
		_, err = op.drain(within, "pod-0")
		require.NoError(t, err)
		a, err = op.drain(within, "pod-1")
		refused(a, err, "the last worker")
		a, err = op.evict(within, "pod-1")
		refused(a, err, "the last worker")
		a, err = op.evictPartition(within, "pod-1", theirs)
		refused(a, err, "the last worker")
		g.WaitAllRunning(time.Second)
	}, fast, grouptest.Partitions(10))
}

// Whatever lies under control.* harms nobody. What can be answered is, and everything goes away by itself.
func TestGarbageUnderControl(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 3)
		starts := g.Oracle.Starts()
		ctx := context.Background()
		bucket, err := op.js.KeyValue(ctx, grouptest.Namespace+"-control")
		require.NoError(t, err)
		stream, err := op.js.Stream(ctx, "KV_"+grouptest.Namespace+"-control")
		require.NoError(t, err)
		garbage := map[string]string{
			"a": "", "b": "not JSON", "c": "{}", "d": "[]", "e": "null", "f": `{"kind":"drain","worker":"pod-0"}`, "g": `{"kind":"evict-worker"}`,
			"h": `{"kind":"evict-worker","worker":"pod-0","state":"accepted"}`, "i": `{"kind":"drain","worker":"pod-0","state":"whatever"}`,
			"drain-pod-1": `{"kind":"drain","worker":"pod-0"}`, "drain-pod-2": `{"kind":"drain","worker":"pod-2","mode":"sideways"}`,
			"j": `{"kind":"evict-partition","worker":"pod-0"}`, "k": strings.Repeat("x", 100_000), "l": `{"kind":7}`, "m.n": "two more tokens",
		}
		for name, value := range garbage {
			_, err := bucket.PutString(ctx, "control."+name, value)
			require.NoError(t, err)
		}
		g.Sleep(5 * time.Second)
		for name := range garbage {
			if name == "m.n" {
				continue
			}
			e, err := bucket.Get(ctx, "control."+name)
			require.NoError(t, err, name)
			o, err := types.DecodeControlOrder("control."+name, e.Value())
			require.NoError(t, err, name)
			require.Equal(t, types.ControlRefused, o.State, name)
			require.Less(t, len(e.Value()), 2000)
			raw, err := stream.GetLastMsgForSubject(ctx, "$KV."+grouptest.Namespace+"-control.control."+name)
			require.NoError(t, err)
			require.Equal(t, "1h0m0s", raw.Header.Get("Nats-TTL"), "it goes away by itself")
		}
		require.Equal(t, starts, g.Oracle.Starts())
		_, err = op.drain(5*time.Second, "pod-2")
		require.NoError(t, err, "orders are still taken")
		op.undrain("pod-2")
	}, fast, grouptest.Partitions(12))
}

// An evicted worker ends what it runs, all of it goes to others, and it comes back as one that joins.
func TestEvictWorker(t *testing.T) {
	for _, whom := range []string{"follower", "leader"} {
		t.Run(whom, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				op := newOperator(g)
				settled(g, 4)
				w := g.Follower()
				if whom == "leader" {
					w = g.Leader()
				}
				id, incarnation := w.ID(), w.Manager.Status().Incarnation
				before := places(g)
				began := time.Now()
				answer, err := op.evict(20*time.Second, id)
				require.NoError(t, err)
				t.Logf("done after %v: %s", time.Since(began), answer.Reason)
				took := g.WaitFor(5*time.Second, "all run elsewhere", func() bool { return g.Oracle.Idle() == 0 && g.Counts()[id] == 0 })
				t.Logf("all run again %v later", took)
				for p, at := range before {
					if at != id {
						require.Equal(t, at, places(g)[p], "nobody else is disturbed")
					}
				}
				g.WaitFor(10*time.Second, "it has joined anew", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
				require.NotEqual(t, incarnation, w.Manager.Status().Incarnation)
			}, fast, grouptest.Partitions(40))
		})
	}
}

// Row 15: a handler hangs while its process heartbeats. It is named; an operator takes the partition away, and then the worker.
func TestHandlerHangsAndIsEvicted(t *testing.T) {
	const stuck = "p-0003"
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		w := g.Oracle.Running()[stuck].Worker
		var worker *grouptest.Worker
		for _, x := range g.Live() {
			if x.ID() == w {
				worker = x
			}
		}
		answer, err := op.evictPartition(20*time.Second, w, stuck)
		require.NoError(t, err)
		t.Log(answer.Reason)
		require.Contains(t, answer.Reason, "evict the worker", "it is honest about what that can do")
		g.WaitFor(10*time.Second, "it is named", func() bool { return len(worker.Manager.Status().Overdue) > 0 })
		require.Equal(t, []string{stuck}, worker.Manager.Status().Overdue)
		require.Equal(t, w, g.Oracle.Running()[stuck].Worker, "nobody starts beside it")
		_, err = op.evictPartition(20*time.Second, w, stuck)
		require.ErrorContains(t, err, "if it still runs there, evict the worker")
		began := time.Now()
		_, err = op.evict(20*time.Second, w)
		require.NoError(t, err)
		g.Sleep(100 * time.Millisecond)
		require.Equal(t, held(places(g), w), 1, "all but the stuck one have returned")
		g.WaitFor(2*ttl, "another worker runs it", func() bool { return len(g.Oracle.Overlaps()) > 0 })
		t.Logf("after the worker's eviction it ran elsewhere within %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), ttl+announced)
	}, fast, grouptest.Partitions(40), grouptest.Manager(parti.WithDrainTimeout(2*time.Second), parti.WithHandoffTimeout(-1)),
		grouptest.Drain(func(p string) time.Duration {
			if p == stuck {
				return 30 * time.Second
			}
			return 0
		}), grouptest.ToleratesOverlaps())
}

// A partition that was evicted stays off its worker while others come and go. All have four, so one other moves in exchange for it, with the
// same commit, and nothing after that.
func TestEvictPartition(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 3)
		before, starts := places(g), g.Oracle.Starts()
		w := before["p-0000"]
		answer, err := op.evictPartition(20*time.Second, w, "p-0000")
		require.NoError(t, err)
		t.Log(answer.Reason)
		g.WaitAllRunning(time.Second)
		require.Equal(t, 2, g.Oracle.Starts()-starts)
		require.Zero(t, g.Spread())
		require.NotEqual(t, w, places(g)["p-0000"])
		g.Sleep(40 * time.Second)
		require.Equal(t, 2, g.Oracle.Starts()-starts)
		g.Leader().Kill()
		g.WaitRunningOn(20*time.Second, g.Live()...)
		g.Start(2)
		g.Sleep(10 * time.Second)
		require.NotEqual(t, w, places(g)["p-0000"], "no later leader gives it back")
		g.WaitAllRunning(time.Second)
	}, fast, grouptest.Partitions(12))
}

// An eviction that one leader has accepted, the next one finishes: whichever step the crash comes after, and only against the incarnation
// that it was about.
func TestEvictionSurvivesAChangeOfLeader(t *testing.T) {
	for _, after := range []time.Duration{1, time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond, 12 * time.Millisecond, 22 * time.Millisecond, 26 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				op := newOperator(g)
				settled(g, 5)
				leader, w := g.Leader(), g.Follower()
				id, incarnation := w.ID(), w.Manager.Status().Incarnation
				done := make(chan error, 1)
				go func() {
					_, err := op.evict(time.Minute, id)
					done <- err
				}()
				g.Sleep(after)
				leader.Kill()
				require.NoError(t, <-done)
				again := ""
				g.WaitFor(20*time.Second, "it is evicted, and back", func() bool {
					again = w.Manager.Status().Incarnation
					return again != "" && again != incarnation
				})
				g.WaitRunningOn(20*time.Second, g.Live()...)
				g.Leader().Stop()
				g.Sleep(10 * time.Second)
				require.Equal(t, again, w.Manager.Status().Incarnation, "it is evicted once")
				g.WaitRunningOn(time.Second, g.Live()...)
				require.LessOrEqual(t, g.Spread(), 1)
			}, fast, grouptest.Partitions(40))
		})
	}
}

// An order waits for a leader, and one that nobody has acted on is void in the end.
func TestOrdersWithoutALeader(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 3)
		leader := g.Leader()
		others := g.Others(int(leader.ID()[4] - '0'))
		leader.Cut()
		answer, err := op.drain(time.Second, others[0].ID())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, answer.State)
		g.WaitFor(10*time.Second, "the next leader acts on it", func() bool { return g.Oracle.Idle() == 0 && g.Counts()[others[0].ID()] == 0 })
		leader.Heal()
		g.Sleep(5 * time.Second)
		op.undrain(others[0].ID())
		for _, w := range g.Live() {
			w.Stop(parti.WithRestartGrace(time.Hour))
		}
		_, err = op.evict(11*time.Minute, "pod-0")
		require.ErrorContains(t, err, "expired unanswered")
		named(g, 3)
		g.WaitAllRunning(10 * time.Second)
		starts := g.Oracle.Starts()
		g.Sleep(10 * time.Second)
		require.Equal(t, starts, g.Oracle.Starts())
	}, fast, grouptest.Partitions(12))
}
