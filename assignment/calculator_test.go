package assignment

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestColdStartEndsWhenMembershipSettles(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.start()
		e.fleet.join("a")
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, types.CalculatorScaling, e.calc.GetState())
		require.Equal(t, types.LifecycleColdStart, e.calc.GetScalingReason())
		e.fleet.join("b")
		time.Sleep(1500 * time.Millisecond)
		e.fleet.join("c")
		c, s, took := e.awaitCommit(0, time.Minute)
		require.InDelta(t, 2, took.Seconds(), 0.1)
		require.Equal(t, types.LifecycleColdStart, c.Lifecycle)
		require.Equal(t, []string{"a", "b", "c"}, workersOf(s))
		require.Len(t, e.owners(s), 10)
		require.Equal(t, types.CalculatorIdle, e.calc.GetState())
		require.Empty(t, e.calc.GetScalingReason())
	})
}

func TestColdStartHasAnUpperBound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.start()
		began := time.Now()
		for i := 0; e.calc.CurrentVersion() == 0; i++ {
			require.Less(t, time.Since(began), 40*time.Second)
			e.fleet.join(fmt.Sprintf("w%d", i))
			time.Sleep(1500 * time.Millisecond)
		}
		require.InDelta(t, 30, time.Since(began).Seconds(), 1.6)
	})
}

func TestExpectedWorkersEndTheWindow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.start(func(c *Config) { c.ExpectedWorkers = 3 })
		e.fleet.join("a", "b")
		time.Sleep(time.Second)
		e.fleet.join("c")
		_, s, took := e.awaitCommit(0, time.Minute)
		require.Less(t, took, 20*time.Millisecond)
		require.Len(t, s.Slices, 3)
	})
}

func TestFirstCommitWithoutPartitions(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(0)
		e.fleet.join("a", "b")
		e.start()
		c, s, _ := e.awaitCommit(0, 10*time.Second)
		require.Equal(t, []string{"a", "b"}, workersOf(s))
		require.Empty(t, e.owners(s))
		e.source.set(4)
		e.source.signals <- struct{}{}
		c, s, took := e.awaitCommit(c.Version, 10*time.Second)
		require.Less(t, took, 20*time.Millisecond)
		require.Equal(t, types.LifecyclePartitions, c.Lifecycle)
		require.Len(t, e.owners(s), 4)
	})
}

func TestJoinLeaveCrash(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(60)
		c, s := e.steady("a", "b", "c")
		before := e.owners(s)

		e.fleet.join("d")
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, 2, took.Seconds(), 0.1, "a join settles")
		require.Equal(t, types.LifecycleScale, c.Lifecycle)
		after := e.owners(s)
		require.Equal(t, 15, moves(before, after))
		e.fleet.ack(c.Version)

		e.fleet.leave("a")
		c, s, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond, "a leave ignores the cooldown")
		require.Equal(t, types.LifecycleLeave, c.Lifecycle)
		require.Equal(t, []string{"b", "c", "d"}, workersOf(s))
		require.Equal(t, 15, moves(after, e.owners(s)))
		e.fleet.ack(c.Version)

		e.fleet.crash("b")
		c, s, took = e.awaitCommit(c.Version, time.Minute)
		t.Logf("crash: committed %v after the last heartbeat", took)
		require.Greater(t, took, testTTL-time.Second)
		require.Less(t, took, testTTL+500*time.Millisecond)
		require.Equal(t, types.LifecycleEmergency, c.Lifecycle)
		require.Equal(t, []string{"c", "d"}, workersOf(s))
		require.Len(t, e.owners(s), 60)
		e.quiet(time.Minute)
	})
}

func TestLeavesShareACommit(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c", "d", "e")
		n := e.committer.commits.Load()
		for _, id := range []string{"a", "b", "c"} {
			e.fleet.leave(id)
			time.Sleep(5 * time.Millisecond)
		}
		_, s, _ := e.awaitCommit(c.Version, time.Second)
		require.Equal(t, []string{"d", "e"}, workersOf(s))
		require.Equal(t, n+1, e.committer.commits.Load())
	})
}

func TestDrainingWorkerGetsNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		n := e.committer.commits.Load()
		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerDraining }, "a")
		c, s, took := e.awaitCommit(c.Version, time.Second)
		require.Less(t, took, 50*time.Millisecond)
		for _, owner := range e.owners(s) {
			require.Equal(t, "b", owner)
		}
		e.fleet.ack(c.Version)
		e.fleet.leave("a")
		e.quiet(time.Minute)
		require.Equal(t, n+1, e.committer.commits.Load(), "the goodbye of one who has nothing costs no commit")
	})
}

func TestCooldownDampsJoins(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		e.fleet.join("c")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		time.Sleep(time.Second)
		e.fleet.join("d")
		_, _, took := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, 9, took.Seconds(), 0.1)
	})
}

func TestFlappingWorkerIsDamped(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.steady("a", "b")
		n := e.committer.commits.Load()
		for range 30 {
			e.fleet.join("f")
			time.Sleep(1500 * time.Millisecond)
			e.fleet.leave("f")
			time.Sleep(500 * time.Millisecond)
		}
		require.LessOrEqual(t, e.committer.commits.Load()-n, int64(12), "in a minute of flapping")
	})
}

func TestManualIgnoresTheCooldown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a")
		e.start()
		c, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.join("b")
		began := time.Now()
		require.NoError(t, e.calc.TriggerRebalance(t.Context()))
		require.Less(t, time.Since(began), 50*time.Millisecond)
		got, s := e.commit()
		require.Equal(t, types.LifecycleManual, got.Lifecycle)
		require.Greater(t, got.Version, c.Version)
		require.Equal(t, []string{"a", "b"}, workersOf(s))

		n := e.committer.commits.Load()
		require.NoError(t, e.calc.TriggerRebalance(t.Context()), "nothing to change")
		require.Equal(t, n, e.committer.commits.Load())

		e.source.set(12)
		require.NoError(t, e.calc.Refresh(t.Context()))
		got, s = e.commit()
		require.Equal(t, types.LifecyclePartitions, got.Lifecycle)
		require.Len(t, e.owners(s), 12)

		e.source.behave(func(context.Context) error { return errTest })
		require.ErrorIs(t, e.calc.TriggerRebalance(t.Context()), types.ErrSourceFailed)
		e.stop()
		require.ErrorIs(t, e.calc.TriggerRebalance(t.Context()), types.ErrNotLeader)
	})
}

func TestSteadyStateWritesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.list = append(e.source.list, types.Partition{Keys: []string{"nobody"}, Label: "gpu"}) // no plan satisfies it
		e.steady("a", "b", "c")
		require.Equal(t, 1, e.calc.Status().Parked)
		e.quiet(10 * time.Minute)
		require.Equal(t, types.CalculatorIdle, e.calc.GetState())
		require.NoError(t, e.calc.Status().LastError)
	})
}

func TestTakeoverMovesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, s := e.steady("a", "b", "c")
		before := e.owners(s)
		e.start()
		e.quiet(time.Minute)
		require.Equal(t, c.Version, e.calc.CurrentVersion())

		e.stop()
		e.fleet.crash("b")
		time.Sleep(testTTL + time.Second)
		e.start()
		c2, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 100*time.Millisecond, "the first complete listing is believed")
		require.Equal(t, types.LifecycleEmergency, c2.Lifecycle)
		require.Greater(t, c2.Version, c.Version)
		for p, w := range e.owners(s) {
			if before[p] != "b" {
				require.Equal(t, before[p], w)
			}
		}
	})
}

func TestTakeoverWaitsForItsOwnHeartbeat(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.steady("a", "b", "c")
		e.start(func(c *Config) { c.Self = types.Holder{Worker: "l", Incarnation: "l-0"} })
		e.fleet.leave("a")
		e.quiet(5 * time.Second)
		self := types.Heartbeat{
			WorkerID: "l", Incarnation: "l-0", SchemaVersion: 1, Capabilities: types.CapAckV1, State: types.WorkerActive,
			ClaimedOver: types.ClaimedNothing,
		}
		value, err := self.Encode()
		require.NoError(t, err)
		_, err = e.outside.Heartbeat.Put(t.Context(), "heartbeat.l", value, 0, 0)
		require.NoError(t, err)
		_, s, took := e.awaitCommit(e.calc.CurrentVersion(), time.Second)
		require.Less(t, took, 100*time.Millisecond)
		require.Equal(t, []string{"b", "c", "l"}, workersOf(s))
	})
}

func TestEverybodyDiesOneStarts(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c")
		e.stop()
		e.fleet.crash("a", "b", "c")
		time.Sleep(10 * testTTL)
		e.fleet.join("n")
		e.start()
		_, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 2*time.Second)
		require.Equal(t, []string{"n"}, workersOf(s))
		require.Len(t, e.owners(s), 10)
	})
}

func TestTwoHundredWorkers(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.set(2000)
		all := ids(200)
		c, s := e.steady(all...)
		before := e.owners(s)
		require.Len(t, before, 2000)
		require.Equal(t, 200, e.calc.Status().Workers)
		e.fleet.crash(all[:50]...) // a rack
		n := e.committer.commits.Load()
		_, _, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, testTTL+500*time.Millisecond)
		time.Sleep(5 * time.Second)
		_, s = e.commit()
		require.Len(t, s.Slices, 150)
		require.LessOrEqual(t, e.committer.commits.Load()-n, int64(5))
		require.Equal(t, 500, moves(before, e.owners(s)))
		e.quiet(time.Minute)
	})
}
