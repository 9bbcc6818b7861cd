package assignment

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// plainFleet has a and b, and the plain workers p and q, which have aliases. They say nothing else than that they are there.
func plainFleet(e *calcEnv) (types.AssignmentCommit, map[string]string) {
	e.fleet.join("a", "b", "p", "q")
	e.fleet.change(func(h *types.Heartbeat) { h.Incarnation, h.Capabilities, h.State = "", 0, types.WorkerActive }, "p", "q")
	e.start()
	c, s, _ := e.awaitCommit(0, 10*time.Second)
	require.Equal(e.t, []string{"a", "b", "p", "q"}, workersOf(s))
	e.fleet.ack(c.Version)
	e.quiet(11 * time.Second)
	return c, e.owners(s)
}

func (e *calcEnv) hasAlias(id string) bool {
	x, err := e.outside.Control.Get(e.t.Context(), record.AliasKey(id))
	return err == nil && !x.Absent()
}

// A plain worker that says that it is to leave is given nothing any more, at once, and loses its alias. It cannot say what it has
// returned, so who gets what it had waits for it: its key has to go, or the HandoffTimeout.
func TestPlainWorkerDrains(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(12)
		c, before := plainFleet(e)
		require.True(t, e.hasAlias("p"))
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerDraining }, "p")
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Equal(t, types.LifecycleLeave, c.Lifecycle)
		require.Equal(t, []string{"a", "b", "q"}, workersOf(s))
		require.False(t, e.hasAlias("p"))
		require.True(t, e.hasAlias("q"))
		for p, w := range e.owners(s) {
			require.True(t, before[p] == "p" || before[p] == w, "only what it had moves")
		}
		for _, sl := range s.Slices {
			for _, en := range sl.Entries {
				if before[en.ID()] == "p" {
					require.Equal(t, []types.Holder{{Worker: "p"}}, holdersOf(en.From), "nothing proves that it has stopped")
				}
			}
		}
		e.quiet(time.Minute)

		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerActive }, "p") // and back
		_, s, _ = e.awaitCommit(c.Version, 15*time.Second)
		require.Contains(t, workersOf(s), "p")
		require.True(t, e.hasAlias("p"))
	})
}

// An operator's order that drains the ID of a plain worker, given while another kind of worker had it, leaves the worker without a seat.
func TestPlainWorkerUnderADrain(t *testing.T) {
	now := time.Now()
	r := newRoster(&Config{HeartbeatTTL: testTTL}, nil)
	r.mandates.drains["p"] = types.DrainOneByOne
	view := View{Listings: 1, Members: map[string]Member{
		"p": {Heartbeat: types.Heartbeat{WorkerID: "p", State: types.WorkerActive}, Seen: now},
		"q": {Heartbeat: types.Heartbeat{WorkerID: "q", State: types.WorkerActive}, Seen: now},
	}}
	s := r.evaluate(view, nil, now)
	require.Len(t, s.seats, 1)
	require.Equal(t, "q", s.seats[0].Worker.Worker)
	require.Equal(t, 1, s.targets)
}

// Where a worker's alias gets too large, that worker gets what fits, and what fits nowhere is parked, until there is somebody for it. What runs
// stays where it is.
func TestPlainWorkersBeyondTheirAliases(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var list []types.Partition
		for i := range 1500 { // 500 on each are some 400 KiB, 750 are 600
			list = append(list, types.NewPartition(fmt.Sprintf("%0240d", i)))
		}
		e.source.mu.Lock()
		e.source.list = list
		e.source.mu.Unlock()
		workers := []string{"p", "q", "r"}
		e.fleet.join(workers...)
		plain := func(h *types.Heartbeat) { h.Incarnation, h.Capabilities, h.State = "", 0, types.WorkerActive }
		e.fleet.change(plain, workers...)
		e.start()
		c, s, _ := e.awaitCommit(0, 10*time.Second)
		require.Zero(t, c.ParkedCount)
		before := e.owners(s)
		e.quiet(11 * time.Second)

		e.fleet.leave("r")
		c, s, _ = e.awaitCommit(c.Version, time.Minute)
		require.Equal(t, workers[:2], workersOf(s))
		after := e.owners(s)
		for p, w := range before {
			require.True(t, w == "r" || after[p] == w, "what runs stays")
		}
		for _, sl := range s.Slices {
			require.Greater(t, len(sl.Entries), 500)
			require.True(t, e.hasAlias(sl.Worker))
		}
		require.Equal(t, len(list), len(after)+len(s.Parked))
		require.NotEmpty(t, s.Parked)
		for _, p := range s.Parked {
			require.Equal(t, "no worker has room", p.Reason)
		}
		require.NoError(t, e.calc.TriggerRebalance(t.Context())) // decides the same
		require.Equal(t, c.Version, e.calc.CurrentVersion())

		e.fleet.join("r")
		e.fleet.change(plain, "r")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		require.Zero(t, c.ParkedCount)
	})
}
