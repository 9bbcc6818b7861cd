package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A listing that does not end within RequestTimeout has failed as a whole: nothing of it is taken over, and the view answers meanwhile,
// at once, with what it knows. Failures are told with their number, and the first complete listing ends them.
func TestListingHasADeadline(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a", "b", "c")
		type outcome struct {
			err    error
			failed int
			took   time.Duration
		}
		told := make(chan outcome, 100)
		var asked time.Time
		m := startMonitor(e, func(m *WorkerMonitor) {
			m.cfg.OnListing = func(err error, failed int, _ time.Time) { told <- outcome{err, failed, time.Since(asked)} }
		})
		require.NoError(t, (<-told).err)

		e.leader.Gate().Hold(natstest.FromServer) // requests arrive, and nothing comes back
		asked = time.Now()
		m.Rescan()
		for want := 1; want <= 3; want++ {
			o := <-told
			require.ErrorIs(t, o.err, context.DeadlineExceeded)
			require.Equal(t, want, o.failed)
			if want == 1 {
				require.InDelta(t, time.Second.Seconds(), o.took.Seconds(), 0.1, "the RequestTimeout")
			}
			began := time.Now()
			v := m.Workers()
			require.Len(t, v.Members, 3, "the view is whole, or as it was")
			require.Equal(t, 1, v.Listings)
			require.WithinDuration(t, time.Now(), v.Trouble, time.Second)
			require.Zero(t, time.Since(began), "asking costs no call")
		}
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"x"} }, "a")
		e.leader.Gate().Heal()
		for o := range told {
			if o.err == nil {
				require.Zero(t, o.failed)
				break
			}
		}
		require.Equal(t, []string{"x"}, m.Workers().Members["a"].Labels)
		require.Greater(t, m.Workers().Listings, 1)
	})
}

// What a view holds is the caller's: later changes do not show in it.
func TestViewIsACopy(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a")
		m := startMonitor(e)
		env.WaitFor(time.Second, "first listing", func() bool { return m.Workers().Listings > 0 })
		v := m.Workers()
		delete(v.Members, "a")
		v.Expired["z"] = true
		e.fleet.join("b")
		env.WaitFor(time.Second, "join", func() bool { return len(m.Workers().Members) == 2 })
		require.Empty(t, v.Members)
		require.Empty(t, m.Workers().Expired)
	})
}
