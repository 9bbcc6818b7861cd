package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestFirstCandidateLeadsAtOnceAndKeepsTheLead(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		start := time.Now()
		a := g.join(env.Connect("a"))
		env.WaitFor(100*time.Millisecond, "a leads", leads(a))
		t.Logf("elected after %v", time.Since(start))
		b := g.join(env.Connect("b"))
		a.SetCommitVersion(42)
		time.Sleep(10 * time.Minute)
		require.Len(t, g.events, 1)
		for _, m := range []*member{a, b} {
			info, ok := m.Leader()
			require.True(t, ok)
			require.Equal(t, a.holder, info.Holder)
			require.Equal(t, a.term(t), info.Revision)
			require.EqualValues(t, 42, info.CommitVersion)
			require.Less(t, time.Since(info.SeenAt), lease/3+time.Second, "every renewal is heard")
			require.Zero(t, m.silences())
		}
		require.NoError(t, a.CheckLeadership(t.Context(), a.term(t)))
		require.ErrorIs(t, b.CheckLeadership(t.Context(), a.term(t)), types.ErrLeadershipLost)
		g.requireClean()
	})
}

func TestTakeoverAfterCrash(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Minute)
		for i, m := range []*member{a, b} {
			old := m.term(t)
			next := g.join(env.Connect([]string{"c", "d"}[i]))
			m.crash()
			crashed := time.Now()
			env.WaitFor(lease+500*time.Millisecond, "takeover", func() bool { return g.leader() != nil })
			t.Logf("crash: next leader after %v", time.Since(crashed))
			require.Greater(t, g.leader().term(t), old)
			if g.leader() == next {
				break
			}
		}
		g.requireClean()
	})
}

// The renewal just before the crash is the worst case; then the wait is the whole lease.
func TestTakeoverWithoutAFeed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Minute)
		require.NoError(t, a.CheckLeadership(t.Context(), a.term(t)))
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, b.sub.Unsubscribe())
		a.crash()
		crashed := time.Now()
		env.WaitFor(lease+500*time.Millisecond, "takeover", leads(b))
		t.Logf("crash, and no feed: next leader after %v", time.Since(crashed))
		require.Equal(t, 1, b.silences(), "the broken feed was reported")
		g.requireClean()
	})
}

// A candidate whose feed is dead, and the leader well, reports the feed and does not take over.
func TestDeadFeedIsReported(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Minute)
		require.NoError(t, b.sub.Unsubscribe())
		require.NoError(t, a.sub.Unsubscribe())
		time.Sleep(5 * time.Minute)
		require.Len(t, g.events, 1)
		for _, m := range g.members {
			require.InDelta(t, 28, m.silences(), 3, "%s: once each lease", m.Name)
		}
		g.requireClean()
	})
}

func TestTakeoverAfterRelease(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Second)
		start := time.Now()
		a.SetCandidate(a.holder, false)
		_, ok := a.Leading()
		require.False(t, ok, "at once")
		env.WaitFor(100*time.Millisecond, "b leads", leads(b))
		t.Logf("release by SetCandidate: next leader after %v", time.Since(start))
		h := g.history(a)
		require.Len(t, h, 2)
		require.NoError(t, h[1].err)

		a.holder.Incarnation = "a-2"
		a.SetCandidate(a.holder, true)
		time.Sleep(time.Minute)
		require.NoError(t, b.Withdraw(t.Context()))
		start = time.Now()
		env.WaitFor(100*time.Millisecond, "a leads again", leads(a))
		t.Logf("release by Withdraw: next leader after %v", time.Since(start))
		term, _ := a.Leading()
		require.Equal(t, a.holder, term.Holder)

		b.SetCandidate(b.holder, true)
		require.NoError(t, a.Stop(t.Context()))
		require.NoError(t, a.Stop(t.Context()), "twice")
		start = time.Now()
		env.WaitFor(100*time.Millisecond, "b leads again", leads(b))
		t.Logf("release by Stop: next leader after %v", time.Since(start))
		require.ErrorIs(t, a.CheckLeadership(t.Context(), term.Revision), types.ErrLeadershipLost)
		a.Start()
		a.SetCandidate(a.holder, true)
		time.Sleep(time.Second)
		g.requireClean()
	})
}

// A new incarnation does not inherit the term.
func TestNewIncarnationIsANewTerm(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		old := a.term(t)
		next := types.Holder{Worker: "a", Incarnation: "a-2"}
		a.SetCandidate(next, true)
		env.WaitFor(200*time.Millisecond, "a leads", leads(a))
		term, _ := a.Leading()
		require.Equal(t, next, term.Holder)
		require.Greater(t, term.Revision, old)
		require.Len(t, g.history(a), 3)
		g.requireClean()
	})
}

// docs/ROBUSTNESS.md row 11: requests arrive, replies vanish.
func TestDemotesOnItsOwnTimerWhenRepliesVanish(t *testing.T) {
	for _, d := range []natstest.Direction{natstest.FromServer, natstest.ToServer, natstest.Both} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			g := newGroup(t)
			defer g.watch(10 * time.Millisecond)()
			a := g.join(env.Connect("a"))
			env.WaitFor(time.Second, "a leads", leads(a))
			b := g.join(env.Connect("b"))
			time.Sleep(time.Minute)
			require.NoError(t, a.CheckLeadership(t.Context(), a.term(t)))
			proved := time.Now()
			a.Gate().Hold(d)
			env.WaitFor(lease, "a has demoted itself", func() bool { return len(g.history(a)) == 2 })
			t.Logf("hold %d: demoted %v after the last proof", d, time.Since(proved))
			require.Less(t, time.Since(proved), lease-a.timing.margin()+hangGrace)
			require.ErrorIs(t, g.history(a)[1].err, types.ErrLeadershipLost)
			env.WaitFor(2*lease, "b leads", leads(b))
			t.Logf("hold %d: next leader %v after the last proof", d, time.Since(proved))
			time.Sleep(time.Minute)
			a.Gate().Heal()
			time.Sleep(time.Minute)
			require.Len(t, g.history(a), 2)
			require.Len(t, g.history(b), 1)
			g.requireClean()
		})
	}
}

// docs/ROBUSTNESS.md row 12: whoever waits in OnLost for its own Commit calls does not deadlock, and nothing passes meanwhile.
func TestNoCommitPassesWhileOnLostRuns(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.prepare(env.Connect("a"))
		release := make(chan struct{})
		a.onLost = func() { <-release }
		a.Start()
		a.SetCandidate(a.holder, true)
		env.WaitFor(time.Second, "a leads", leads(a))
		term := a.term(t)
		a.SetCandidate(a.holder, false)
		time.Sleep(time.Minute)
		_, err := a.Commit(t.Context(), term, 1, "n", []kv.Write{{Key: "assignment._commit", Value: []byte("1")}})
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		close(release)
		_, err = a.store.Get(t.Context(), "assignment._commit")
		require.ErrorIs(t, err, kv.ErrNotFound)
		g.requireClean()
	})
}

func TestServerRestart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		g.storage = jetstream.FileStorage
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Second)
		term := a.term(t)
		env.Restart()
		time.Sleep(time.Minute)
		require.Equal(t, term, a.term(t), "a short outage costs nothing")

		env.Server.Stop()
		time.Sleep(time.Minute)
		require.Nil(t, g.leader())
		require.NoError(t, env.Server.Start())
		start := time.Now()
		env.WaitFor(2*time.Second, "a leader", func() bool { return g.leader() != nil })
		t.Logf("after an outage of a minute: leader after %v", time.Since(start))
		require.Greater(t, g.leader().term(t), term)
		_ = b
		g.requireClean()
	})
}

func TestStopWithoutStart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.prepare(env.Connect("a"))
		require.NoError(t, a.Withdraw(t.Context()))
		require.NoError(t, a.Stop(t.Context()))
		a.Start()
		require.NoError(t, a.Stop(t.Context()))
		require.NoError(t, a.Withdraw(t.Context()))
	})
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		a.Gate().Hold(natstest.Both)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, a.Stop(ctx), context.DeadlineExceeded)
		require.Equal(t, 500*time.Millisecond, time.Since(start))
		require.NoError(t, a.Stop(t.Context()))
		require.Less(t, time.Since(start), time.Second)
		require.Len(t, g.history(a), 2)
		g.requireClean()
	})
}
