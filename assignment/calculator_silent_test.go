package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The marker of a worker that died was missed, and no listing comes through: it keeps what it has and is given nothing, until something is heard
// of it. Found by seed 975 of test/sim.
func TestSilentWorkerIsGivenNothing(t *testing.T) {
	now := time.Now()
	r := newRoster(&Config{HeartbeatTTL: testTTL}, nil)
	member := func(id string, seen time.Time) Member {
		return Member{Heartbeat: types.Heartbeat{WorkerID: id, Incarnation: "i", State: types.WorkerActive, Capabilities: types.CapAckV1}, Seen: seen}
	}
	committed := &plan.State{Slices: []plan.Slice{
		{Holder: types.Holder{Worker: "a", Incarnation: "i"}},
		{Holder: types.Holder{Worker: "c", Incarnation: "earlier"}},
	}}
	view := View{Listings: 1, Members: map[string]Member{
		"a": member("a", now.Add(-2*testTTL)), "b": member("b", now), "c": member("c", now.Add(-2*testTTL)),
		"d": member("d", now.Add(-testTTL)),
	}}
	s := r.evaluate(view, committed, now)
	require.Len(t, s.seats, 3)
	require.True(t, s.seats[0].held && !s.seats[0].Target, "a keeps what it has")
	require.True(t, s.seats[1].Target && s.seats[2].Target, "b and d are heard of")
	require.Equal(t, []string{"c"}, s.gone, "an earlier life of c is over in any case")
	require.Equal(t, 2, s.targets)
	require.True(t, s.relist)
	require.False(t, s.next.IsZero(), "it is looked at again")

	view.Listed = now.Add(-time.Second)
	s = r.evaluate(view, committed, now)
	require.Equal(t, []string{"a"}, s.dead, "a listing tells that its key is there, and was not renewed")
	require.Equal(t, []string{"c"}, s.gone)
	require.Equal(t, 2, s.targets)
	require.False(t, s.relist, "what was looked for is known")
	r.recovery.trouble(now)
	s = r.evaluate(view, committed, now)
	require.Empty(t, s.dead, "where the store was in trouble it may not have been able to")
	require.Equal(t, 1, s.held)
	r.recovery = recovery{hold: testTTL}
	view.Listed = now.Add(-testTTL) // it began before its key was to have expired
	require.Empty(t, r.evaluate(view, committed, now).dead)

	view.Members["a"], view.Members["c"] = member("a", now), member("c", now)
	s = r.evaluate(view, committed, now)
	require.Equal(t, 4, s.targets)
	require.Zero(t, s.held)
}

// counts returns how many partitions each worker has under the present commit.
func counts(e *calcEnv) map[string]int {
	_, s := e.commit()
	n := map[string]int{}
	for _, slice := range s.Slices {
		n[slice.Worker] = len(slice.Entries)
	}
	return n
}

// What is judged is when a worker was heard last, not when the leader last looked: one that missed beats within its lease and beats again has its share.
func TestSilenceIsJudgedByWhatWasHeardLast(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(12)
		e.steady("a", "b", "c")
		listing := func(after int) int {
			for e.calc.Monitor().Workers().Listings == after {
				time.Sleep(10 * time.Millisecond)
			}
			return e.calc.Monitor().Workers().Listings
		}
		n := listing(e.calc.Monitor().Workers().Listings)
		time.Sleep(3 * time.Second)
		e.fleet.crash("a") // it misses beats only: its key lives on
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			n = listing(n)
		}
		time.Sleep(100 * time.Millisecond)
		e.fleet.call(func() { e.fleet.workers["a"].quiet = false })
		e.fleet.change(func(*types.Heartbeat) {}, "a")
		time.Sleep(17200*time.Millisecond - time.Since(began))
		e.source.set(60)
		e.source.signals <- struct{}{}
		time.Sleep(20 * time.Second)
		require.Equal(t, map[string]int{"a": 20, "b": 20, "c": 20}, counts(e))
	})
}

// One that stands by and dies while the leader cannot be sure of it takes nobody's place.
func TestHeldStandbyEmptiesNobody(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(12)
		e.fleet.join("a", "b", "c", "d")
		e.start(func(c *Config) { c.MaxWorkers, c.DampingPeriod = 3, -1 })
		c, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(c.Version)
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerActive }, "a", "b", "c", "d")
		e.quiet(11 * time.Second)
		standby := e.calc.Status().StandingBy
		require.Len(t, standby, 1)
		before := counts(e)
		e.fleet.crash(standby[0])
		time.Sleep(testTTL - 2*time.Second)
		e.calc.NoteTrouble()
		for range 25 {
			time.Sleep(time.Second)
			now := counts(e)
			delete(now, standby[0])
			delete(before, standby[0])
			require.Equal(t, before, now)
		}
	})
}
