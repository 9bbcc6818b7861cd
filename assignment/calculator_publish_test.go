package assignment

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// attempt is what OnPublish was told.
type attempt struct {
	err    error
	failed int
	since  time.Time
	at     time.Time
}

// attempts collects what OnPublish is told.
type attempts struct {
	mu   sync.Mutex
	told []attempt
}

func (a *attempts) listen(c *Config) {
	c.OnPublish = func(err error, failed int, since time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = append(a.told, attempt{err, failed, since, time.Now()})
	}
}

// take returns what was told since the last call.
func (a *attempts) take() []attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	a.told = nil
	return told
}

func (a *attempts) last() attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.told) == 0 {
		return attempt{}
	}
	return a.told[len(a.told)-1]
}

// refuse makes the committer refuse everything with err; nil: nothing.
func (e *calcEnv) refuse(err error) {
	f := func(context.Context) error { return err }
	e.committer.before.Store(&f)
}

// requireRow checks that the attempts failed one after the other, all in one row that began with the first.
func requireRow(t *testing.T, told []attempt) {
	t.Helper()
	require.NotEmpty(t, told)
	for i, a := range told {
		require.Error(t, a.err)
		require.Equal(t, i+1, a.failed)
		require.True(t, a.since.Equal(told[0].at), "since the first")
	}
}

// Commits that fail are told with their number, whatever the reason: the commit that is read between two of them, which succeeds, is no
// proof. A commit ends the row, and each further one is told too.
func TestFailedCommitsAreTold(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused":  errTest,
		"conflict": fmt.Errorf("%w: for ever", types.ErrCommitConflict),
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				e := newCalcEnv(t, env)
				var a attempts
				e.fleet.join("a", "b")
				e.start(a.listen)
				c, _, _ := e.awaitCommit(0, 10*time.Second)
				require.NoError(t, a.last().err)
				require.Len(t, a.take(), 1)

				e.refuse(refusal)
				e.fleet.join("c")
				e.WaitFor(5*time.Minute, "ten failures", func() bool { return a.last().failed >= 10 })
				requireRow(t, a.take())
				e.refuse(nil)
				c, _, _ = e.awaitCommit(c.Version, lastJobRetry+time.Second)
				require.Equal(t, []int{0}, row(a.take()))
				e.fleet.leave("b")
				e.awaitCommit(c.Version, time.Minute)
				require.Equal(t, []int{0}, row(a.take()))
			})
		})
	}
}

// row returns the number of failures in a row that each attempt was told with; 0: it succeeded.
func row(told []attempt) (failed []int) {
	for _, a := range told {
		failed = append(failed, a.failed)
	}
	return failed
}

// A last commit that cannot be read is told in the same way: without it there is no next one.
func TestUnreadableStoreIsTold(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var a attempts
		e.steady("a", "b")
		e.leader.Gate().Hold(natstest.FromServer) // requests arrive, and nothing comes back
		e.start(a.listen)
		e.WaitFor(5*time.Minute, "five failures", func() bool { return a.last().failed >= 5 })
		requireRow(t, a.take())
		e.leader.Gate().Heal()
		e.WaitFor(time.Minute, "the end", func() bool { told := a.last(); return !told.at.IsZero() && told.err == nil })
		e.quiet(time.Minute)
	})
}

// Where what was to be committed is not to be any more, the row ends without a commit.
func TestNeedlessCommitEndsTheRow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var a attempts
		e.steady("a", "b")
		e.start(a.listen)
		e.quiet(time.Minute)
		require.Empty(t, a.take(), "there was nothing to do")
		e.refuse(errTest)
		e.fleet.join("c")
		e.WaitFor(time.Minute, "five failures", func() bool { return a.last().failed >= 5 })
		e.fleet.leave("c")
		e.WaitFor(time.Minute, "the end", func() bool { return a.last().err == nil })
		told := a.take()
		requireRow(t, told[:len(told)-1])
		e.quiet(time.Minute)
		require.Empty(t, a.take())
	})
}

// Nothing has to be committed either while a death is not acted on, because a commit has failed. That ends nothing: it fails again when the
// death is acted on.
func TestDeathHeldBackEndsNoRow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var a attempts
		c, _ := e.steady("a", "b", "c")
		e.start(a.listen)
		e.refuse(fmt.Errorf("%w: test", kv.ErrUnavailable))
		e.fleet.crash("a")
		e.WaitFor(10*testTTL, "three failures", func() bool { return a.last().failed >= 3 })
		told := a.take()
		requireRow(t, told)
		require.Greater(t, told[2].at.Sub(told[0].at), testTTL, "it was held back in between")
		e.refuse(nil)
		_, s, _ := e.awaitCommit(c.Version, 2*testTTL)
		require.Equal(t, []string{"b", "c"}, workersOf(s))
		require.Equal(t, []int{0}, row(a.take()))
	})
}

// Nor is the row over while a change of the source is held back.
func TestSourceHeldBackEndsNoRow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var a attempts
		c, _ := e.steady("a", "b")
		e.start(a.listen)
		e.refuse(fmt.Errorf("%w: test", kv.ErrUnavailable))
		e.fleet.join("c")
		e.WaitFor(time.Minute, "a failure", func() bool { return a.last().failed >= 1 })
		e.source.set(12)
		e.source.signals <- struct{}{}
		e.fleet.leave("c")
		time.Sleep(testTTL / 2)
		needless := a.last()
		e.WaitFor(10*testTTL, "another failure", func() bool { return a.last() != needless })
		told := a.take()
		requireRow(t, told)
		require.GreaterOrEqual(t, told[len(told)-1].at.Sub(needless.at), testTTL, "it was held back in between")
		e.refuse(nil)
		_, s, _ := e.awaitCommit(c.Version, 2*testTTL)
		require.Len(t, e.owners(s), 12)
		require.Equal(t, []int{0}, row(a.take()))
	})
}

// What an ordinary change of the lead brings about, one or two conflicts with the former leader's last commit, is told as that.
func TestConflictsOfAChangeOfTheLead(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var a attempts
		left := 2
		conflicts := func(context.Context) error {
			if left == 0 {
				return nil
			}
			left--
			return types.ErrCommitConflict
		}
		e.committer.before.Store(&conflicts)
		e.fleet.join("a", "b")
		e.start(a.listen)
		e.awaitCommit(0, 10*time.Second)
		require.Equal(t, []int{1, 2, 0}, row(a.take()))
	})
}
