package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// stuckFollower has a metrics method that does not return, which it must not do: so its worker applies no further commit and goes on
// with its heartbeats.
type stuckFollower struct {
	types.NopMetrics
	release chan struct{}
}

func (s *stuckFollower) CommitApplied(_ int64, partitions int) {
	if partitions > 0 {
		<-s.release
	}
}

// A worker that heartbeats and follows no commit is reported, then evicted: it fences itself, and others run what it was given.
func TestStuckWorkerIsEvicted(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		stuck := &stuckFollower{release: make(chan struct{})}
		defer close(stuck.release)
		w := g.Start(1, parti.WithWorkerID("stuck"), parti.WithMetrics(stuck))[0]
		g.WaitFor(10*time.Second, "the first commit gives it its share", func() bool { return g.Oracle.Idle() == 0 && g.Counts()["stuck"] == 10 })
		incarnation := w.Manager.Status().Incarnation
		began := time.Now()
		g.SetPartitions(10*time.Second, grouptest.Numbered(27)...) // takes some from it, or gives some
		leader := g.Leader()
		g.WaitFor(20*time.Second, "reported", func() bool { return slices.Contains(leader.Manager.Status().WorkersBehind, "stuck") })
		t.Logf("reported after %v", time.Since(began))
		require.Equal(t, incarnation, w.Manager.Status().Incarnation)
		g.WaitFor(2*time.Minute, "evicted", func() bool { return w.Manager.Status().Incarnation != incarnation })
		t.Logf("evicted after %v", time.Since(began))
		require.Greater(t, time.Since(began), 45*time.Second, "not before a new owner may have given it up")
		require.Less(t, time.Since(began), 70*time.Second)
		g.WaitRunningOn(20*time.Second, g.Others(2)...)
	}, fast, grouptest.Partitions(30))
}
