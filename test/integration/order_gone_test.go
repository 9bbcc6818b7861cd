package integration

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Who waits for an order that somebody removes, or puts another one over, is told so by name.
func TestOrderThatIsGone(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := g.Start(1, parti.WithRole(parti.RoleFollower))[0] // nobody answers
		js := g.Env.Connect("operator").JS()
		given := make(chan error, 1)
		give := func() {
			_, err := parti.Drain(context.Background(), js, grouptest.Namespace, w.ID())
			given <- err
		}
		go give()
		g.Sleep(time.Second)
		buckets, err := kv.OpenBuckets(context.Background(), js, grouptest.Namespace)
		require.NoError(t, err)
		key := types.ControlKey(types.ControlDrain, w.ID(), "")
		e, err := buckets.Control.Get(context.Background(), key)
		require.NoError(t, err)
		_, err = buckets.Control.Delete(context.Background(), key, e.Revision)
		require.NoError(t, err)
		err = <-given
		require.ErrorIs(t, err, parti.ErrOrderGone)
		require.ErrorContains(t, err, "deleted")

		go give()
		g.Sleep(time.Second)
		_, err = parti.Undrain(context.Background(), js, grouptest.Namespace, w.ID())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		err = <-given
		require.ErrorIs(t, err, parti.ErrOrderGone)
		require.ErrorContains(t, err, "another one")
	}, fast)
}
