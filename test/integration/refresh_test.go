package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// With nobody to give anything to, a Refresh of the leader waits for 30 s as that of a follower does, and not for ever.
func TestRefreshWithoutWorkersEnds(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		c := g.Start(1, coordinator...)[0]
		require.True(t, g.Leader() == c)
		g.Sleep(5 * time.Second)
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- c.Manager.Refresh(context.Background()) }()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(time.Minute):
			t.Error("Refresh still waits")
			g.Start(1)
			<-done
		}
		t.Logf("it returned after %v", time.Since(began))
	}, fast)
}

// What Refresh says about the source does not depend on which worker is asked.
func TestRefreshErrorsAreTheSameEverywhere(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(10 * time.Second)
		g.Source.Fail(errors.New("no table"))
		for _, w := range []*grouptest.Worker{g.Leader(), g.Follower()} {
			err := w.Manager.Refresh(context.Background())
			require.ErrorIs(t, err, parti.ErrSourceFailed)
			require.ErrorContains(t, err, "no table")
		}
		g.Source.Fail(nil)
		require.NoError(t, g.Follower().Manager.Refresh(context.Background()))
		g.Leader().Kill()
		require.ErrorIs(t, g.Live()[0].Manager.Refresh(context.Background()), parti.ErrNotLeader)
	}, fast)
}
