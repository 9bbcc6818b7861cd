package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// places returns which worker runs each partition.
func places(g *grouptest.Group) map[string]string {
	at := map[string]string{}
	for p, r := range g.Oracle.Running() {
		at[p] = r.Worker
	}
	return at
}

// moved counts the partitions that run on another worker than before, or nowhere.
func moved(before, after map[string]string) (n int) {
	for p, w := range before {
		if after[p] != w {
			n++
		}
	}
	return n
}

// named starts n workers with the IDs of a StatefulSet's pods.
func named(g *grouptest.Group, n int) []*grouptest.Worker {
	g.T.Helper()
	ws := make([]*grouptest.Worker, n)
	started := make(chan error, n)
	for i := range ws {
		ws[i] = g.Make(parti.WithWorkerID(fmt.Sprintf("pod-%d", i)))
		go func() { started <- ws[i].Start() }()
	}
	for range ws {
		require.NoError(g.T, <-started)
	}
	return ws
}

// rollFleet runs the scenario for each way to name workers: a fleet that is complete and quiet, with each partitions per worker and some more, and
// what starts the worker that comes after the ith.
func rollFleet(t *testing.T, each, more int, scenario func(g *grouptest.Group, fleet []*grouptest.Worker, again func(i int) *grouptest.Worker)) {
	pod := func(i int) []parti.Option { return []parti.Option{parti.WithWorkerID(fmt.Sprintf("pod-%d", i))} }
	size := 100
	if underRace {
		size = 25
	}
	for name, way := range map[string]struct {
		start func(g *grouptest.Group, n int) []*grouptest.Worker
		next  func(i int) []parti.Option
	}{
		"given IDs":  {named, pod},
		"pooled IDs": {func(g *grouptest.Group, n int) []*grouptest.Worker { return g.Start(n) }, func(int) []parti.Option { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				fleet := way.start(g, size)
				g.WaitAllRunning(30 * time.Second)
				g.Sleep(5 * time.Second)
				scenario(g, fleet, func(i int) *grouptest.Worker { return g.Start(1, way.next(i)...)[0] })
			}, fast, grouptest.Partitions(each*size+more))
		})
	}
}

// Row 23: a fleet of 100 is rolled one after the other with a restart grace, leader included, and no partition ever goes to another worker.
func TestRollingRestartWithGraceMovesNothing(t *testing.T) {
	natstest.Long(t)
	rollFleet(t, 5, 7, func(g *grouptest.Group, fleet []*grouptest.Worker, again func(i int) *grouptest.Worker) {
		t := g.T
		before := places(g)
		var longest time.Duration
		elections := 0
		for i, w := range fleet {
			id := w.ID()
			if w.Manager.IsLeader() {
				elections++
			}
			w.Stop(parti.WithRestartGrace(time.Minute))
			g.Sleep(500 * time.Millisecond) // a process does not start at once; without a grace, its partitions would have moved in that time
			require.Equal(t, 0, strangers(g, before), "while %s is away nobody else runs what is its", id)
			require.Equal(t, id, again(i).ID())
			longest = max(longest, g.WaitAllRunning(5*time.Second))
			require.Equal(t, 0, moved(before, places(g)), "%s is back", id)
		}
		t.Logf("%d workers, %d partitions: 0 moved, the lead moved %d times, at most %v from start to running", len(fleet), len(before), elections, longest)
		require.LessOrEqual(t, longest, 60*time.Millisecond)
		require.Positive(t, elections)
	})
}

// strangers counts the partitions that run elsewhere than before.
func strangers(g *grouptest.Group, before map[string]string) (n int) {
	for p, w := range places(g) {
		if before[p] != w {
			n++
		}
	}
	return n
}

// Without a grace, only the minimum moves: what the one that stops has, and its share when it is back. What does not move never stops (row 24).
func TestRollingRestartWithoutGraceDisturbsNobodyElse(t *testing.T) {
	natstest.Long(t)
	const each = 5
	rollFleet(t, each, 0, func(g *grouptest.Group, fleet []*grouptest.Worker, again func(i int) *grouptest.Worker) {
		t := g.T
		total, least := 0, 0
		for i, w := range fleet {
			id := w.ID()
			before, starts := places(g), g.Oracle.Starts()
			w.Stop()
			g.WaitAllRunning(5 * time.Second)
			gone := g.Oracle.Starts() - starts
			require.Equal(t, held(before, id), gone, "what was %s's is started anew", id)
			require.Equal(t, gone, moved(before, places(g)), "and nothing else moves")
			between := places(g)
			starts = g.Oracle.Starts()
			id = again(i).ID() // of a pool it may be another one that is free
			g.WaitFor(10*time.Second, "it has its share", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 && g.Counts()[id] > 0 })
			back := g.Oracle.Starts() - starts
			// The least that makes an even fleet: as many partitions for everybody, and no rest.
			require.Equal(t, each, back, "its share moves back")
			require.Equal(t, held(places(g), id), moved(between, places(g)), "to nobody but %s", id)
			total, least = total+gone+back, least+2*each
		}
		t.Logf("%d workers, %d partitions: %d moves, the least is %d", len(fleet), each*len(fleet), total, least)
		require.Equal(t, least, total)
	})
}

// Several pooled workers restart at once: each starter finds an ID that waits, though a lower one is free.
func TestSeveralPooledRestartsAtOnce(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		ws := g.Start(12)
		g.WaitAllRunning(10 * time.Second)
		for _, w := range ws { // a free ID below those that restart
			if w.ID() == "worker-0" {
				w.Stop()
			}
		}
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		before := places(g)
		waiting := map[string]bool{}
		for _, w := range ws {
			if w.ID() != "worker-0" && len(waiting) < 8 {
				waiting[w.ID()] = true
				w.Stop(parti.WithRestartGrace(time.Minute))
			}
		}
		g.Sleep(2 * ttl)
		for _, w := range g.Start(8) {
			require.True(t, waiting[w.ID()], "%s was not waited for", w.ID())
			delete(waiting, w.ID())
		}
		g.WaitAllRunning(5 * time.Second)
		require.Equal(t, 0, moved(before, places(g)))
	}, fast, grouptest.Partitions(60))
}

// The grace outlives everything that could end it early: the last words in the store, the leader that heard them, and the next one too.
func TestGraceSurvivesItsKeyAndItsLeaders(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		named(g, 5)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(3 * time.Second)
		operator := g.Env.Connect("operator")
		before := places(g)
		w := g.Follower()
		id := w.ID()
		w.Stop(parti.WithRestartGrace(10 * time.Minute))
		g.Sleep(100 * time.Millisecond)
		deleteHeartbeat(t, g, operator, id)
		first := g.Leader()
		first.Stop(parti.WithRestartGrace(10 * time.Minute)) // releases the lead
		g.Sleep(time.Second)
		second := g.Leader()
		second.Cut()
		g.Sleep(200 * time.Millisecond)
		second.Kill()
		g.WaitFor(ttl+time.Second, "a third leader has re-homed the second's", func() bool { return g.Oracle.Idle() == held(before, id)+held(before, first.ID()) })
		g.Sleep(6 * time.Minute) // past the end of the first leader's last words, too
		for p, at := range places(g) {
			if before[p] == id || before[p] == first.ID() {
				require.Fail(t, "moved within the grace", "%s runs on %s", p, at)
			}
		}
		for _, name := range []string{id, first.ID()} {
			g.Start(1, parti.WithWorkerID(name))
		}
		g.WaitAllRunning(ttl + time.Second) // nothing proves what became of a worker whose key was deleted: one life of it must pass
		for p, at := range before {
			if at == id || at == first.ID() {
				require.Equal(t, at, places(g)[p])
			}
		}
	}, fast, grouptest.Partitions(40))
}

// held counts the partitions of a worker.
func held(at map[string]string, worker string) (n int) {
	for _, w := range at {
		if w == worker {
			n++
		}
	}
	return n
}

// A leader that crashes right after it has heard of a grace, before or after its commit, takes nothing of it away.
func TestLeaderCrashesAroundTheGrace(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 21 * time.Millisecond, 25 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				named(g, 4)
				g.WaitAllRunning(10 * time.Second)
				g.Sleep(3 * time.Second)
				before := places(g)
				leader, w := g.Leader(), g.Follower()
				id := w.ID()
				w.Stop(parti.WithRestartGrace(30 * time.Second))
				g.Sleep(after)
				leader.Kill()
				g.Sleep(3 * ttl)
				require.Equal(t, held(before, id), g.Oracle.Idle(), "what waits for %s waits, what the leader had runs again", id)
				g.Start(1, parti.WithWorkerID(id))
				g.WaitAllRunning(time.Second)
				for p, at := range before {
					if at == id {
						require.Equal(t, id, places(g)[p])
					}
				}
			}, fast, grouptest.Partitions(40))
		})
	}
}

// Who is not back in time loses what was kept, at once when the grace ends; it comes back as one that joins.
func TestGraceExpires(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		named(g, 4)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(3 * time.Second)
		before := places(g)
		w := g.Follower()
		id := w.ID()
		w.Stop(parti.WithRestartGrace(20 * time.Second))
		g.Sleep(19800 * time.Millisecond)
		require.Equal(t, held(before, id), g.Oracle.Idle())
		took := g.WaitAllRunning(time.Second)
		t.Logf("re-homed %v after the end of the grace", took-200*time.Millisecond)
		require.LessOrEqual(t, took, 200*time.Millisecond+60*time.Millisecond)
		g.Start(1, parti.WithWorkerID(id))
		g.WaitFor(10*time.Second, "it has its share again", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 && g.Counts()[id] > 0 })
	}, fast, grouptest.Partitions(40))
}

// A group that restarts as a whole, with nobody left to lead, finds everything in place.
func TestWholeGroupRestartsWithGrace(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		ws := named(g, 5)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(3 * time.Second)
		before := places(g)
		done := make(chan struct{})
		for _, w := range ws {
			go func() { w.Stop(parti.WithRestartGrace(time.Minute)); done <- struct{}{} }()
		}
		for range ws {
			<-done
		}
		require.Empty(t, places(g))
		g.Sleep(10 * ttl)
		for i := range ws {
			g.Start(1, parti.WithWorkerID(fmt.Sprintf("pod-%d", i)))
			g.Sleep(3 * time.Second)
		}
		g.WaitAllRunning(time.Second)
		require.Equal(t, 0, moved(before, places(g)))
	}, fast, grouptest.Partitions(43))
}

// A handler that outlives Stop's deadline is named in the last words; its ID is free when the lease has run out, and nothing moves even so.
func TestRestartGraceWithAHandlerThatHangs(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		named(g, 3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(3 * time.Second)
		before := places(g)
		w := g.Follower()
		id := w.ID()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.StopWithin(ctx, parti.WithRestartGrace(time.Minute)), parti.ErrDrainTimeout)
		w.Kill() // the process ends
		began := time.Now()
		g.Start(1, parti.WithWorkerID(id))
		t.Logf("claimed %v after the process ended", time.Since(began))
		require.LessOrEqual(t, time.Since(began), ttl+time.Second)
		g.WaitAllRunning(time.Second)
		require.Equal(t, 0, moved(before, places(g)))
	}, fast, grouptest.Partitions(30), grouptest.Drain(func(p string) time.Duration {
		if p < "p-0010" {
			return 20 * time.Second
		}
		return 0
	}))
}

// What leaves the source leaves a worker that restarts, too; what stays is kept for it.
func TestSourceShrinksWithinAGrace(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		named(g, 4)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(3 * time.Second)
		before := places(g)
		w := g.Follower()
		id := w.ID()
		w.Stop(parti.WithRestartGrace(time.Minute))
		g.SetPartitions(10*time.Second, grouptest.Numbered(30)...)
		g.Sleep(10 * time.Second)
		g.Start(1, parti.WithWorkerID(id))
		g.WaitAllRunning(time.Second)
		for p, at := range places(g) {
			if before[p] == id {
				require.Equal(t, id, at, p)
			}
		}
	}, fast, grouptest.Partitions(40))
}

// A grace that cannot be given is said, and Stop stops all the same.
func TestRestartGraceOutOfRange(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 2 * time.Hour} {
			w := g.Start(1)[0]
			err := w.StopWithin(context.Background(), parti.WithRestartGrace(d))
			require.ErrorIs(t, err, parti.ErrInvalidConfig, "%v", d)
			require.Equal(t, parti.StateStopped, w.Manager.State())
		}
	}, fast)
}
