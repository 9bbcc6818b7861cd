package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// A worker knows that it is drained: while the order stands, after a restart, and when it was away while the order changed.
func TestDrainedWorkerKnows(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 4)
		w := g.Follower()
		id := w.ID()
		drained := func(d time.Duration, w *grouptest.Worker, want bool) {
			t.Helper()
			g.WaitFor(d, "it is heard", func() bool { return w.Manager.Status().Drained == want })
			for _, other := range g.Live() {
				require.Equal(t, want && other == w, other.Manager.Status().Drained, other.ID())
			}
		}
		drained(0, w, false)
		_, err := op.drain(time.Minute, id)
		require.NoError(t, err)
		drained(time.Second, w, true)
		require.True(t, w.Manager.Status().Ready(), "it takes part all the same")

		w.Stop()
		w = g.Start(1, parti.WithWorkerID(id))[0]
		drained(5*time.Second, w, true)
		g.WaitAllRunning(10 * time.Second)

		w.Client.Gate().Cut()
		op.undrain(id)
		require.True(t, w.Manager.Status().Drained, "as last heard")
		w.Client.Gate().Heal()
		drained(30*time.Second, w, false)
		w.Client.Gate().Cut()
		_, err = op.drain(time.Minute, id)
		require.NoError(t, err)
		w.Client.Gate().Heal()
		drained(30*time.Second, w, true)
		op.undrain(id)
		drained(time.Second, w, false)
		g.WaitAllRunning(10 * time.Second)

		leader := g.Leader()
		_, err = op.drain(time.Minute, leader.ID())
		require.NoError(t, err)
		drained(time.Second, leader, true)
	}, fast, grouptest.Partitions(20))
}

// An undrain for an ID that nobody has is done, and its answer says that nobody has it.
func TestUndrainOfNobody(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 2)
		undrain := func(worker string) string {
			ctx, cancel := limited(5 * time.Second)
			defer cancel()
			a, err := parti.Undrain(ctx, op.js, grouptest.Namespace, worker)
			require.NoError(t, err)
			require.Equal(t, parti.ControlDone, a.State)
			return a.Reason
		}
		require.Contains(t, undrain("pod-77"), `no live worker has the ID "pod-77"`)
		require.Equal(t, "it may be given partitions", undrain("pod-1"))
	}, fast)
}

// An order that was refused drains nobody.
func TestRefusedDrainIsNotShown(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 1)
		_, err := op.drain(time.Minute, g.Leader().ID())
		require.ErrorIs(t, err, parti.ErrRefused)
		g.Sleep(time.Second)
		require.False(t, g.Leader().Manager.Status().Drained)
	}, fast, grouptest.Partitions(4))
}
