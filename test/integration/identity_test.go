package integration

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// deleteHeartbeat does what an operator does with a KV tool.
func deleteHeartbeat(t *testing.T, g *grouptest.Group, c *natstest.Client, worker string) {
	t.Helper()
	ctx := context.Background()
	bucket, err := c.JS().KeyValue(ctx, grouptest.Namespace+"-heartbeat")
	require.NoError(t, err)
	g.Checker.AllowOperator()
	require.NoError(t, bucket.Delete(ctx, "heartbeat."+worker))
}

// Row 19: an operator deletes a member's key. The member stops what it runs, says that it is not ready, and comes back under a
// new incarnation.
func TestDeletedKeyIsClaimedAgain(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		operator := g.Env.Connect("operator")
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		id, incarnation := w.ID(), w.Manager.Status().Incarnation
		changes, stop := w.Manager.Subscribe()
		defer stop()
		<-changes
		deleteHeartbeat(t, g, operator, id)
		require.Equal(t, parti.State(parti.StateDegraded), (<-changes).To, "it is not ready meanwhile")
		g.WaitFor(ttl+announced, "it takes part again", func() bool {
			s := w.Manager.Status()
			return s.Ready() && s.Incarnation != incarnation && s.Running > 0
		})
		require.Equal(t, id, w.ID())
		g.WaitAllRunning(time.Second)
	}, fast, grouptest.Partitions(30))
}

// Row 20: after kill -9 a process with the same given ID waits for the expiry and takes over as a new incarnation.
func TestReplacementWithTheSameIDWaitsForTheExpiry(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		w := g.Start(1, parti.WithWorkerID("pod-7"))[0]
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(100 * time.Millisecond)
		w.Kill()
		began := time.Now()
		again := g.Start(1, parti.WithWorkerID("pod-7"))[0]
		t.Logf("claimed %v after the kill", time.Since(began))
		require.Equal(t, "pod-7", again.ID())
		require.LessOrEqual(t, time.Since(began), ttl+announced)
		g.WaitFor(2*time.Second, "it has its share", func() bool { return g.Oracle.Idle() == 0 && g.Counts()["pod-7"] == 10 })
	}, fast, grouptest.Partitions(30))
}

// Row 20, pooled IDs: the replacement takes another one at once.
func TestPooledReplacementTakesAnotherIDAtOnce(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		id := w.ID()
		w.Kill()
		began := time.Now()
		again := g.Start(1)[0]
		require.Less(t, time.Since(began), 50*time.Millisecond)
		require.NotEqual(t, id, again.ID())
	}, fast, grouptest.Partitions(30))
}

// A pooled worker that left in good order leaves its ID to the next one.
func TestPooledReplacementInheritsTheIDThatWasLeft(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		for range 3 { // one by one: of those that contend for an ID, one passes it over
			g.Start(1)
		}
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		id := w.ID()
		w.Stop()
		require.Equal(t, id, g.Start(1)[0].ID())
		g.WaitAllRunning(5 * time.Second)
	}, fast, grouptest.Partitions(30))
}

// Row 21: of two live processes with one ID exactly one runs; the other is told who has it.
func TestTwoProcessesWithOneID(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(1, parti.WithWorkerID("pod-7"))
		g.WaitAllRunning(10 * time.Second)
		first := g.Worker(0)
		incarnation := first.Manager.Status().Incarnation
		second := g.Make(parti.WithWorkerID("pod-7"))
		began := time.Now()
		err := second.Start()
		require.ErrorIs(t, err, parti.ErrWorkerIDTaken)
		require.ErrorContains(t, err, incarnation)
		require.Less(t, time.Since(began), 3*time.Second, "an interval shows that the holder lives")
		g.Sleep(10 * ttl)
		require.Equal(t, incarnation, first.Manager.Status().Incarnation, "no ping-pong")
		require.ErrorIs(t, second.Manager.Start(context.Background()), parti.ErrStopped)
	}, fast, grouptest.Partitions(30))
}

// Row 21, simultaneously: exactly one of two starters gets the ID.
func TestTwoStartersWithOneID(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		a, b := g.Make(parti.WithWorkerID("pod-7")), g.Make(parti.WithWorkerID("pod-7"))
		results := make(chan error, 2)
		go func() { results <- a.Start() }()
		go func() { results <- b.Start() }()
		first, second := <-results, <-results
		require.NoError(t, first)
		require.ErrorIs(t, second, parti.ErrWorkerIDTaken)
		g.WaitAllRunning(10 * time.Second)
	}, fast, grouptest.Partitions(30))
}

// A process that was cut off while another one took its ID over comes back, finds it taken, and runs nothing: the group goes on.
func TestCutOffHolderFindsItsIDTaken(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		old := g.Start(1, parti.WithWorkerID("pod-7"))[0]
		g.WaitAllRunning(10 * time.Second)
		old.Cut()
		g.Sleep(ttl)
		fresh := g.Start(1, parti.WithWorkerID("pod-7"))[0]
		old.Heal()
		g.WaitFor(10*time.Second, "the old one is told", func() bool {
			s := old.Manager.Status()
			return s.State == parti.StateDegraded && s.Running == 0 && isTaken(s.LastError)
		})
		fresh.Stop()
		g.WaitFor(10*time.Second, "the old one takes the ID again", func() bool { return old.Manager.Status().Ready() })
		g.WaitAllRunning(5 * time.Second)
	}, fast, grouptest.Partitions(30))
}
