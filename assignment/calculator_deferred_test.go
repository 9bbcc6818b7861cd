package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// says gives the source so many partitions, and has it tell.
func (e *calcEnv) says(n int) {
	e.source.set(n)
	e.source.signals <- struct{}{}
}

// What the source says while the store was in trouble lately waits until the grace is over, and not a moment longer. What the group itself
// does goes on, on the partitions from before.
func TestSourceIsDeferredDuringTheRecoveryGrace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c")
		e.quiet(time.Second + 234*time.Millisecond) // the grace is to end at no beat of anything

		e.calc.NoteTrouble()
		end := time.Now().Add(testTTL)
		looks := e.source.looks()
		e.says(12)
		e.WaitFor(time.Second, "it is looked at as ever", func() bool { return e.source.looks() > looks })
		e.quiet(time.Second)
		require.Equal(t, 10, e.calc.Status().Partitions)

		e.fleet.join("d")
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 3*time.Second)
		require.Equal(t, types.LifecycleScale, c.Lifecycle)
		require.Len(t, e.owners(s), 10)
		e.fleet.ack(c.Version)

		e.fleet.change(func(h *types.Heartbeat) { h.State = types.WorkerLeft }, "a")
		c, s, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Equal(t, types.LifecycleLeave, c.Lifecycle)
		require.Len(t, e.owners(s), 10)
		e.fleet.ack(c.Version)

		e.says(14)
		e.quiet(time.Until(end) - time.Millisecond)
		c, s, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 20*time.Millisecond)
		require.Equal(t, types.LifecyclePartitions, c.Lifecycle)
		require.Len(t, e.owners(s), 14)
		require.Equal(t, 14, e.calc.Status().Partitions)
		e.fleet.ack(c.Version)
		e.quiet(time.Minute)

		e.says(15) // as ever, without trouble
		_, _, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 20*time.Millisecond)
	})
}

// A second trouble prolongs the grace, and with it the waiting; who asks does not wait; and what is taken back is never decided on.
func TestRefreshIsNotDeferred(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c")

		e.calc.NoteTrouble()
		e.says(20)
		e.quiet(10 * time.Second)
		e.calc.NoteTrouble()
		e.quiet(10 * time.Second)
		began := time.Now()
		require.NoError(t, e.calc.Refresh(t.Context()))
		require.Less(t, time.Since(began), 20*time.Millisecond)
		c, s := e.commit()
		require.Equal(t, types.LifecyclePartitions, c.Lifecycle)
		require.Len(t, e.owners(s), 20)
		e.fleet.ack(c.Version)
		e.quiet(time.Minute)

		e.calc.NoteTrouble()
		e.says(30)
		e.quiet(5 * time.Second)
		e.says(20)
		e.quiet(time.Minute)

		// Half of what was deferred is gone: that has to be seen three times, as ever, though it is no fewer than what is decided on.
		e.calc.NoteTrouble()
		e.says(50)
		e.quiet(time.Second)
		e.says(21)
		e.quiet(500 * time.Millisecond)
		require.True(t, e.calc.Status().SourceSuspicious)
		e.quiet(3 * time.Second)
		require.False(t, e.calc.Status().SourceSuspicious)
		_, s, took := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, 10.5, took.Seconds(), 0.1)
		require.Len(t, e.owners(s), 21)
	})
}

// An outage: the deaths that the leader cannot judge and the change of the source are one decision when the grace lifts.
func TestSourceIsDeferredAfterAnOutage(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b", "c")
		e.fleet.crash("a")
		time.Sleep(10 * time.Second)
		e.leader.Gate().Cut()
		time.Sleep(8 * time.Second)
		e.leader.Gate().Heal()
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, e.calc.Status().Held)
		until := e.calc.Status().RecoveryUntil
		e.says(12)
		e.quiet(time.Until(until) - time.Millisecond)
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		require.Equal(t, types.LifecycleEmergency, c.Lifecycle)
		require.Equal(t, []string{"b", "c"}, workersOf(s))
		require.Len(t, e.owners(s), 12)
		e.fleet.ack(c.Version)
		e.quiet(time.Minute)
	})
}

// A new leader that was in trouble holds what the last commit says, and decides on what is new at the end. Where there is no commit, there is
// nothing to hold.
func TestNewLeaderDefersTheSource(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		troubled := func(c *Config) { c.LastTrouble = time.Now() }
		e.fleet.join("a", "b")
		e.start(troubled)
		time.Sleep(time.Second)
		e.says(11)
		c, s, took := e.awaitCommit(0, time.Minute)
		require.Less(t, took, 2*time.Second)
		require.Len(t, e.owners(s), 11)
		e.fleet.ack(c.Version)
		e.stop()

		e.source.set(12)
		e.start(troubled)
		e.quiet(testTTL - time.Millisecond)
		_, s, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 20*time.Millisecond)
		require.Len(t, e.owners(s), 12)
	})
}

// The monitor tells of trouble while a commit is being made, when nobody is evaluated: it counts for the source all the same.
func TestTroubleCountsWhileACommitIsMade(t *testing.T) {
	now := time.Now()
	l := &loop{c: &Calculator{}, roster: newRoster(&Config{HeartbeatTTL: testTTL}, nil), committed: &plan.State{}}
	require.True(t, l.sourceHeld(now).IsZero())
	l.view.Trouble = now
	require.Equal(t, now.Add(testTTL), l.sourceHeld(now))
	require.True(t, l.sourceHeld(now.Add(testTTL)).IsZero())
}

// What the source announces while a look at it is under way may have come too late for that look.
func TestChangeDuringALookIsNotMissed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		e.source.behave(func(context.Context) error { time.Sleep(2 * time.Second); return nil })
		e.says(10)
		e.quiet(time.Second)
		e.source.behave(nil)
		e.says(20)
		_, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 12*time.Second, "not at the next look of its own")
		require.Len(t, e.owners(s), 20)
	})
}
