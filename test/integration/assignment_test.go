package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// owned counts the partitions of m's assignment that it owns, and those that it does not.
func owned(m *parti.Manager) (owned, not int) {
	for _, p := range m.Assignment().Partitions {
		if m.Owns(p.Partition) {
			owned++
		} else {
			not++
		}
	}
	return owned, not
}

// Assignment lists nothing where nothing can be owned any more: after Stop, whether all handlers have returned or not, and without an incarnation.
func TestAssignmentAgreesWithOwns(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		settled(g, 3)
		for _, w := range g.Live() {
			has, not := owned(w.Manager)
			require.Positive(t, has)
			require.Zero(t, not)
		}
		w := g.Follower()
		version := w.Manager.Assignment().Version
		w.Stop()
		requireNothing(t, w.Manager, version)

		w = g.Follower()
		w.Client.Gate().Cut()
		g.WaitFor(time.Minute, "the lease has run out", func() bool { return w.Manager.State() == parti.StateDegraded && w.Manager.Status().Incarnation == "" })
		require.Empty(t, w.Manager.Assignment().Partitions)
		w.Client.Gate().Heal()
		g.WaitAllRunning(time.Minute)
		g.WaitFor(time.Minute, "it has its share again", func() bool { has, not := owned(w.Manager); return has > 0 && not == 0 })

		w = g.Leader()
		version = w.Manager.Assignment().Version
		ctx, cancel := limited(10 * time.Millisecond)
		defer cancel()
		require.ErrorIs(t, w.StopWithin(ctx), parti.ErrDrainTimeout)
		require.Empty(t, w.Manager.Assignment().Partitions, "what hangs is listed by Partitions only")
		for _, p := range w.Manager.Partitions() {
			require.Equal(t, types.OwnershipDraining, p.State)
		}
		g.Sleep(time.Second)
		requireNothing(t, w.Manager, version)
	}, fast, grouptest.Partitions(12), grouptest.Drain(func(string) time.Duration { return 100 * time.Millisecond }))
}

// requireNothing says that m has stopped, and that everything that it tells of partitions agrees on that.
func requireNothing(t *testing.T, m *parti.Manager, version int64) {
	t.Helper()
	a, s := m.Assignment(), m.Status()
	require.Empty(t, a.Partitions)
	require.GreaterOrEqual(t, a.Version, version)
	require.Empty(t, m.Partitions())
	require.Zero(t, s.Assigned+s.Waiting+s.Running+s.Draining+s.Lost)
	require.Equal(t, parti.StateStopped, s.State)
	for _, p := range grouptest.Numbered(12) {
		require.False(t, m.Owns(p))
	}
}

// Answers vanish: from the moment at which the lease is over nothing is assigned, though a request still hangs.
func TestNothingIsAssignedWithoutALease(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		settled(g, 3)
		for k := range 5 {
			w := g.Follower()
			g.Sleep(time.Duration(k) * 700 * time.Millisecond)
			w.Client.Gate().Hold(natstest.FromServer)
			for range 2000 {
				g.Sleep(10 * time.Millisecond)
				if w.Manager.Status().LeaseLeft == 0 {
					require.Empty(g.T, w.Manager.Assignment().Partitions)
				}
			}
			w.Client.Gate().Heal()
			g.WaitAllRunning(time.Minute)
		}
	}, grouptest.Partitions(9))
}
