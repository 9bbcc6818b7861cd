package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGuardOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g fence.Guard
		highest := map[string]int64{}
		for _, epoch := range rapid.SliceOf(rapid.Int64Range(1, 20)).Draw(t, "epochs") {
			p := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "partition")
			err := g.Check(p, epoch)
			if epoch < highest[p] {
				var stale *fence.StaleError
				require.ErrorAs(t, err, &stale)
				require.ErrorIs(t, err, fence.ErrStale)
				require.Equal(t, fence.StaleError{Subject: p, Epoch: epoch, Highest: highest[p]}, *stale)
			} else {
				require.NoError(t, err)
				highest[p] = epoch
			}
			require.Equal(t, highest[p], g.Highest(p))
		}
	})
}

func TestGuardRefusesWhatIsNoEpoch(t *testing.T) {
	var g fence.Guard
	require.ErrorIs(t, g.Check("p", 0), types.ErrInvalidConfig)
	require.Zero(t, g.Highest("p"))
}

// A newer owner's write waits for the older one's that is under way; the older one's next is refused.
func TestGuardDoIsOneStep(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		var g fence.Guard
		var order []string
		under := make(chan struct{})
		older := make(chan error)
		go func() {
			older <- g.Do(t.Context(), "p", 1, func() error {
				close(under)
				time.Sleep(time.Second)
				order = append(order, "older")
				return nil
			})
		}()
		<-under
		require.NoError(t, g.Do(t.Context(), "q", 1, func() error { return nil }), "another partition waits for nobody")
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, g.Do(short, "p", 2, func() error { return errors.New("called") }), context.DeadlineExceeded)
		require.NoError(t, g.Do(t.Context(), "p", 2, func() error { order = append(order, "newer"); return nil }))
		require.NoError(t, <-older)
		require.Equal(t, []string{"older", "newer"}, order)
		require.ErrorIs(t, g.Do(t.Context(), "p", 1, func() error { return errors.New("called") }), fence.ErrStale)
	})
}
