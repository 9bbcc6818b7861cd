package integration

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// More handlers than a heartbeat can name ignore that Stop ends them: nobody starts their partitions before the lease has run out.
func TestStopWithMoreStuckHandlersThanCanBeNamed(t *testing.T) {
	const n = 3 * types.MaxUnreturned
	for name, opts := range map[string][]parti.StopOption{"left": nil, "restarting": {parti.WithRestartGrace(time.Second)}} {
		t.Run(name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				settled(g, 2)
				w := g.Follower()
				ctx, cancel := limited(time.Second)
				defer cancel()
				began, starts := time.Now(), g.Oracle.Starts()
				err := w.StopWithin(ctx, opts...)
				require.ErrorIs(t, err, parti.ErrDrainTimeout)
				stopped := time.Since(began)
				g.Sleep(time.Second)
				require.Equal(t, starts, g.Oracle.Starts(), "nothing is released before the lease has run out")
				g.WaitFor(2*ttl, "the other one runs them", func() bool { return g.Oracle.Starts()-starts == n/2 })
				t.Logf("Stop returned after %v, everything runs elsewhere %v after the call", stopped, time.Since(began))
				g.Sleep(20 * time.Second)
			}, fast, grouptest.Partitions(n), grouptest.Drain(func(string) time.Duration { return 20 * time.Second }), grouptest.ToleratesOverlaps())
		})
	}
}

// Who waits for handlers to return is not stuck, however many they are and whether or not they can be named. With a HandoffTimeout of for ever
// nobody starts beside them.
func TestManyDrainsAreNotBehind(t *testing.T) {
	natstest.Long(t)
	const n = 4 * types.MaxUnreturned
	var slow atomic.Bool
	grouptest.Bubble(t, func(g *grouptest.Group) {
		op := newOperator(g)
		settled(g, 2)
		w := g.Follower()
		slow.Store(true)
		_, err := op.drain(5*time.Second, w.ID(), parti.WithoutWaiting())
		require.NoError(t, err)
		before := w.Manager.Status().Incarnation
		g.Sleep(100 * time.Second)
		slow.Store(false)
		require.Empty(t, g.Leader().Manager.Status().WorkersBehind)
		require.Equal(t, before, w.Manager.Status().Incarnation, "not evicted")
		require.Equal(t, n/2, w.Manager.Status().Draining)
		g.WaitFor(40*time.Second, "they run elsewhere", func() bool { return g.Oracle.Idle() == 0 && w.Manager.Status().Draining == 0 })
	}, fast, grouptest.Partitions(n), grouptest.Manager(parti.WithHandoffTimeout(-1)),
		grouptest.Drain(func(string) time.Duration {
			if slow.Load() {
				return 2 * time.Minute
			}
			return 0
		}))
}
