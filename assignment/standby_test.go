package assignment

import (
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestStandBy(t *testing.T) {
	owned := map[string]int{"b": 1, "d": 9}
	of := func(w string) int { return owned[w] }
	all := []string{"a", "b", "c", "d"}
	for limit, want := range map[int][]string{
		0: nil, 1: {"a", "c", "d"}, 2: {"a", "c"}, 3: {"c"}, 4: nil, 9: nil,
	} {
		for range 3 { // whatever the order
			require.Equal(t, want, StandBy(limit, all, of), "limit %d", limit)
			slices.Reverse(all)
		}
	}
}

// Who waits for the end of a grace or of a doubt counts, who is drained does not, and a plain worker that stands by is not listed.
func TestSittingLimit(t *testing.T) {
	worker := func(id string) types.Holder { return types.Holder{Worker: id, Incarnation: id} }
	target := func(id string) seat { return seat{Worker: plan.Worker{Holder: worker(id), Target: true}} }
	fresh := func() *sitting {
		plain := target("e")
		plain.plain = true
		return &sitting{targets: 4, seats: []seat{
			target("a"),
			{Worker: plan.Worker{Holder: worker("b"), Listed: true}}, // drained
			{Worker: plan.Worker{Holder: worker("c"), GraceUntil: 5}},
			target("d"), plain, target("f"),
		}}
	}
	committed := &plan.State{Slices: []plan.Slice{
		{Holder: worker("c"), Entries: []types.AssignmentEntry{{}}}, {Holder: worker("f"), Entries: []types.AssignmentEntry{{}}},
	}}
	for limit, want := range map[int][]string{1: {"a", "d", "e", "f"}, 2: {"a", "d", "e"}, 3: {"d", "e"}, 4: {"e"}, 5: nil} {
		s := fresh()
		s.limit(limit, committed)
		require.Equal(t, want, s.standby, "limit %d", limit)
		require.Equal(t, 4-len(want), s.targets)
		for _, w := range s.seats {
			is := slices.Contains(want, w.Worker.Worker)
			require.Equal(t, is, w.standby)
			require.False(t, is && (w.Target || !w.Listed))
			require.False(t, is && w.plain, "a plain worker that stands by is not listed")
		}
	}
}

// While all that are not in a restart grace stand by for those that are, commits are made: with the graces, and with what the source says.
func TestCommitsWhileAllOthersStandBy(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join(ids(3)...)
		e.start(func(c *Config) { c.MaxWorkers = 2 })
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(first.Version)
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerActive }, ids(3)...)
		e.quiet(20 * time.Second)
		before, parked := e.counts()
		require.Equal(t, map[string]int{"w-000": 5, "w-001": 5}, before)
		require.Zero(t, parked)

		restarts := func(h *types.Heartbeat) { h.State, h.RestartGrace = types.WorkerRestarting, 600_000 }
		e.fleet.change(restarts, "w-000", "w-001")
		time.Sleep(5 * time.Second)
		c, s := e.commit()
		require.Greater(t, c.Version, first.Version)
		require.NotZero(t, s.Slices[0].GraceUntil)
		require.NotZero(t, s.Slices[1].GraceUntil)
		e.source.set(13)
		require.NoError(t, e.calc.Refresh(t.Context()))
		now, parked := e.counts()
		require.Equal(t, before, now)
		require.Equal(t, 3, parked, "w-002 stands by")

		e.fleet.join("w-000", "w-001")
		time.Sleep(5 * time.Second)
		now, parked = e.counts()
		require.Equal(t, map[string]int{"w-000": 7, "w-001": 6}, now)
		require.Zero(t, parked)
	})
}
