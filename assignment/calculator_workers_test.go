package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestDeletedKeyOutlastsTheGrace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, s := e.steady("a", "b", "c")
		before := e.owners(s)

		e.fleet.remove("a")
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, e.calc.Status().Held)
		require.Equal(t, c.Version, e.calc.CurrentVersion())
		e.fleet.join("a") // it fenced, and came back within the grace
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Equal(t, types.LifecycleRecovery, c.Lifecycle)
		require.Zero(t, moves(before, e.owners(s)))
		e.quiet(20 * time.Second)

		e.fleet.remove("a")
		c, s, took = e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, (testTTL / 2).Seconds(), took.Seconds(), 0.2)
		require.Equal(t, types.LifecycleEmergency, c.Lifecycle)
		require.Equal(t, []string{"b", "c"}, workersOf(s))
		require.Zero(t, e.calc.Status().Held)
	})
}

func TestMassDeletionNeedsTwoListings(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a", "b", "c", "d")
		e.start(func(c *Config) { c.EmergencyGracePeriod = -1 })
		c, _, _ := e.awaitCommit(0, time.Minute)
		e.fleet.remove("a", "b", "c")
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Greater(t, took, time.Second)
		require.Less(t, took, 2*time.Second)
		require.Equal(t, types.LifecycleEmergency, c.Lifecycle)
		require.Equal(t, []string{"d"}, workersOf(s))
	})
}

func TestOutageIsNoMassDeath(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, s := e.steady("a", "b", "c")
		before := e.owners(s)
		e.fleet.crash("a", "b")
		time.Sleep(10 * time.Second)
		e.leader.Gate().Cut()
		time.Sleep(8 * time.Second) // the keys expire meanwhile
		e.leader.Gate().Heal()
		healed := time.Now()
		time.Sleep(3 * time.Second)
		require.Equal(t, 2, e.calc.Status().Held)
		require.False(t, e.calc.Status().RecoveryUntil.IsZero())

		e.fleet.join("a") // returns at once to what it had, while b is still waited for
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Zero(t, moves(before, e.owners(s)))
		require.Equal(t, []string{"a", "b", "c"}, workersOf(s))

		c, s, _ = e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, testTTL.Seconds(), time.Since(healed).Seconds(), 1)
		require.Equal(t, types.LifecycleEmergency, c.Lifecycle)
		require.Equal(t, []string{"a", "c"}, workersOf(s))
		require.Len(t, e.owners(s), 10)
		e.quiet(time.Minute)
	})
}

func TestTroubleBeforeTheTermCounts(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c")
		e.stop()
		e.fleet.crash("a", "b")
		time.Sleep(testTTL + testInterval)
		began := time.Now()
		e.start(func(c *Config) { c.LastTrouble = time.Now() })
		time.Sleep(time.Second)
		require.Equal(t, 2, e.calc.Status().Held)
		e.calc.NoteTrouble()
		_, s, _ := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, testTTL.Seconds()+1, time.Since(began).Seconds(), 0.2)
		require.Equal(t, []string{"c"}, workersOf(s))
	})
}

func TestRollingRestartMovesNothing(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(60)
		all := ids(6)
		c, s := e.steady(all...)
		before := e.owners(s)
		for i, id := range all {
			e.fleet.change(func(h *types.Heartbeat) { h.State, h.RestartGrace = types.WorkerRestarting, 60_000 }, id)
			time.Sleep(time.Second)
			if i == 3 {
				e.start() // the leader too
			}
			time.Sleep(testTTL + 4*time.Second) // longer than the key lives
			_, s = e.commit()
			require.Zero(t, moves(before, e.owners(s)))
			e.fleet.join(id)
			time.Sleep(100 * time.Millisecond)
			c, s = e.commit()
			require.Zero(t, moves(before, e.owners(s)))
			for _, sl := range s.Slices {
				require.Zero(t, sl.GraceUntil)
				if sl.Worker == id {
					require.Equal(t, e.fleet.holder(id), sl.Holder)
					require.Equal(t, c.Version, sl.Entries[0].Epoch)
				}
			}
		}
		e.fleet.change(func(h *types.Heartbeat) { h.State, h.RestartGrace = types.WorkerRestarting, 30_000 }, all[0])
		time.Sleep(100 * time.Millisecond)
		c, _ = e.commit()
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, 30, took.Seconds(), 0.3, "the grace ends")
		require.NotContains(t, workersOf(s), all[0])
		require.Len(t, e.owners(s), 60)
	})
}

func TestNewIncarnationGetsItsPartitionsBack(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, s := e.steady("a", "b")
		before := e.owners(s)
		old := e.fleet.holder("a")
		e.fleet.join("a") // over its own key, as after a fence
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Zero(t, moves(before, e.owners(s)))
		for _, en := range s.Slices[0].Entries {
			require.Equal(t, c.Version, en.Epoch)
			require.Equal(t, []types.From{{Holder: old, Version: c.Version}}, en.From)
		}
	})
}

func TestLabels(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.list = append(e.source.list, types.Partition{Keys: []string{"special"}, Label: "gpu"})
		c, _ := e.steady("a", "b")
		require.Equal(t, 1, e.calc.Status().Parked)
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"gpu"} }, "b")
		_, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 2500*time.Millisecond)
		require.Equal(t, "b", e.owners(s)["special"])
		require.Zero(t, e.calc.Status().Parked)
	})
}

// TestPlainWorkersAreListed: who writes a timestamp gets partitions as everybody; who writes what this release cannot read gets nothing.
func TestPlainWorkersAreListed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		_, err := e.outside.Heartbeat.Put(t.Context(), "heartbeat.old", []byte(time.Now().Format(time.RFC3339)), 0, 0)
		require.NoError(t, err)
		_, err = e.outside.Heartbeat.Put(t.Context(), "heartbeat.future", []byte(`{"worker_id":"future","schema_version":9}`), 0, 0)
		require.NoError(t, err)
		e.fleet.join("a")
		e.start()
		_, s, _ := e.awaitCommit(0, time.Minute)
		require.Equal(t, []string{"a", "old"}, workersOf(s))
		require.Equal(t, 2, e.calc.Status().Workers)
		require.Equal(t, 1, e.calc.Status().Legacy)
		require.Empty(t, s.Slices[1].Incarnation)
	})
}

// TestPruning: what a holder has proved is not in the next `from`.
func TestPruning(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(1)
		e.source.list[0] = types.NewPartition("p")
		c, _ := e.steady("a")
		a := e.fleet.holder("a")
		e.fleet.join("b")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		e.quiet(11 * time.Second)
		e.fleet.ack(c.Version)
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerDraining }, "a")
		c, s, _ := e.awaitCommit(c.Version, time.Minute)
		require.Equal(t, []types.From{{Holder: a, Version: c.Version}}, s.Slices[0].Entries[0].From)
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerActive }, "a")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		b := e.fleet.holder("b")

		// a still names the run when p goes from b to c: both are in `from`.
		run := []types.Run{{Partition: "p", Epoch: 1}}
		e.fleet.call(func() { e.fleet.workers["a"].hb.Unreturned = run })
		e.fleet.ack(c.Version)
		e.fleet.join("c")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerDraining }, "a", "b")
		c, s, _ = e.awaitCommit(c.Version, time.Minute)
		require.ElementsMatch(t, []types.Holder{a, b}, holdersOf(s.Slices[0].Entries[0].From))

		// The run has returned: only b and c are left.
		e.fleet.change(func(h *types.Heartbeat) { h.Unreturned = nil }, "a")
		e.fleet.ack(c.Version - 1)
		e.fleet.join("d")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		last := e.fleet.holder("c")
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerDraining }, "c")
		_, s, _ = e.awaitCommit(c.Version, time.Minute)
		require.Subset(t, []types.Holder{b, last}, holdersOf(s.Slices[0].Entries[0].From))
		require.Contains(t, holdersOf(s.Slices[0].Entries[0].From), last)
	})
}

func holdersOf(from []types.From) (hs []types.Holder) {
	for _, f := range from {
		hs = append(hs, f.Holder)
	}
	return hs
}
