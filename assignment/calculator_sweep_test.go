package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// failSweeps lets the next batch, a commit, through, and refuses those after it.
func (e *calcEnv) failSweeps() {
	n := 0
	f := func(context.Context) error {
		if n++; n > 1 {
			return errTest
		}
		return nil
	}
	e.committer.before.Store(&f)
}

// An alias that could not be deleted after the commit that took it away is deleted as soon as that is possible, without another commit.
func TestFailedSweepIsRepeated(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := plainFleet(e)
		e.failSweeps()
		e.fleet.leave("p")
		c, s, _ := e.awaitCommit(c.Version, time.Minute)
		require.Equal(t, []string{"a", "b", "q"}, workersOf(s))
		time.Sleep(time.Minute)
		require.True(t, e.hasAlias("p"))
		require.True(t, e.hasAlias("q"))
		e.committer.before.Store(nil)
		time.Sleep(lastJobRetry * 3 / 2)
		require.False(t, e.hasAlias("p"))
		require.True(t, e.hasAlias("q"))
		now, _ := e.commit()
		require.Equal(t, c.Version, now.Version)
	})
}

// The next leader deletes the aliases that the one before left, also where it has nothing to commit. It leaves alone those of the commit.
func TestNextLeaderSweeps(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := plainFleet(e)
		e.failSweeps()
		e.fleet.leave("p")
		c, _, _ = e.awaitCommit(c.Version, time.Minute)
		e.fleet.ack(c.Version)
		e.stop()
		require.True(t, e.hasAlias("p"))
		e.committer.before.Store(nil)
		e.start()
		time.Sleep(2 * firstSweep)
		require.False(t, e.hasAlias("p"))
		require.True(t, e.hasAlias("q"))
		now, _ := e.commit()
		require.Equal(t, c.Version, now.Version)
		batches := e.committer.commits.Load()
		time.Sleep(time.Minute)
		require.Equal(t, batches, e.committer.commits.Load())
	})
}
