package election

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

const commitKey = "assignment._commit"

func write(value string, expect uint64) []kv.Write {
	return []kv.Write{{Key: commitKey, Value: []byte(value), Expect: expect}}
}

func (m *member) get(t *testing.T, key string) kv.Entry {
	t.Helper()
	e, err := m.store.Get(t.Context(), key)
	require.NoError(t, err)
	return e
}

// led runs f with a leader and an observer that is connected to the server undisturbed.
func led(t *testing.T, f func(t *testing.T, env *natstest.Env, g *group, a, observer *member)) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		observer := g.prepare(env.Connect("observer"))
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		f(t, env, g, a, observer)
		g.requireClean()
	})
}

func TestCommitWritesAllAndRenews(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		time.Sleep(time.Second)
		term := a.term(t)
		writes := append(write("1", 0), kv.Write{Key: "assignment._commit_log.1", Value: []byte("log"), TTL: time.Minute})
		revs, err := a.Commit(t.Context(), term, 1, "n1", writes)
		sent := time.Now()
		require.NoError(t, err)
		require.Equal(t, []uint64{a.get(t, commitKey).Revision, a.get(t, "assignment._commit_log.1").Revision}, revs)
		info, _ := a.Leader()
		require.EqualValues(t, 1, info.CommitVersion)
		require.Equal(t, term, info.Revision)
		renewed := a.get(t, Key).Revision
		require.Equal(t, revs[0]-1, renewed)

		time.Sleep(time.Until(a.timing.renewAt(sent)) - 50*time.Millisecond)
		require.Equal(t, renewed, a.get(t, Key).Revision, "the commit was a renewal")
		time.Sleep(100 * time.Millisecond)
		e := a.get(t, Key)
		require.Equal(t, renewed+3, e.Revision)
		info, err = DecodeInfo(e)
		require.NoError(t, err)
		require.EqualValues(t, 1, info.CommitVersion, "renewals repeat the version")

		revs, err = a.Commit(t.Context(), term, 1, "n2", []kv.Write{{Key: commitKey, Expect: revs[0], Delete: true}})
		require.NoError(t, err)
		require.True(t, a.get(t, commitKey).Absent())
		require.Equal(t, a.get(t, commitKey).Revision, revs[0])
	})
}

func TestCommitRefusesWhatItMust(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		before := a.get(t, Key).Revision
		_, err := a.Commit(t.Context(), term-1, 1, "n", write("1", 0))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		_, err = a.Commit(t.Context(), term+1, 1, "n", write("1", 0))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		_, err = observer.Commit(t.Context(), term, 1, "n", write("1", 0))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		_, err = a.Commit(t.Context(), term, 1, "", write("1", 0))
		require.Error(t, err)
		_, err = a.Commit(t.Context(), term, 1, "n", []kv.Write{{Key: Key, Any: true}})
		require.Error(t, err)
		_, err = a.Commit(t.Context(), term, 1, "n", make([]kv.Write, kv.MaxBatch))
		require.Error(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Commit(ctx, term, 1, "n", write("1", 0))
		require.ErrorIs(t, err, context.Canceled)
		_, err = a.Commit(t.Context(), term, 1, "n", write(string(make([]byte, 2<<20)), 0))
		require.ErrorIs(t, err, types.ErrPayloadTooLarge)
		require.NotErrorIs(t, err, types.ErrOutcomeUnknown)
		_, err = a.store.Get(t.Context(), commitKey)
		require.ErrorIs(t, err, kv.ErrNotFound)
		require.Equal(t, before, a.get(t, Key).Revision, "nothing was sent")
		require.Equal(t, term, a.term(t))
	})
}

func TestCommitsAreSerialised(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for n := range 5 {
					key := fmt.Sprintf("assignment.%d-%d", i, n)
					revs, err := a.Commit(t.Context(), term, 1, key, []kv.Write{{Key: key, Value: []byte("x")}})
					if err != nil || len(revs) != 1 {
						t.Errorf("%s: %v %v", key, revs, err)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, g.history(a), 1)
	})
}

// A lost race for the commit key is no demotion; a lost leader key is.
func TestCommitTellsConflicts(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		revs, err := a.Commit(t.Context(), term, 1, "n1", write("1", 0))
		require.NoError(t, err)
		_, err = a.Commit(t.Context(), term, 2, "n2", write("2", revs[0]-1))
		require.ErrorIs(t, err, types.ErrCommitConflict)
		require.NotErrorIs(t, err, types.ErrLeadershipLost)
		require.Equal(t, term, a.term(t))
		require.Equal(t, "1", string(a.get(t, commitKey).Value))
		info, _ := a.Leader()
		require.EqualValues(t, 1, info.CommitVersion, "a version that was not written is not told")

		// Somebody takes the key; the leader's feed does not tell it.
		require.NoError(t, a.sub.Unsubscribe())
		e := a.get(t, Key)
		_, err = observer.store.Put(t.Context(), Key, []byte(`{"worker":"z","incarnation":"z","lease_seconds":10,"nonce":"z"}`), e.Revision, lease)
		require.NoError(t, err)
		_, err = a.Commit(t.Context(), term, 2, "n3", write("2", revs[0]))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		require.NotErrorIs(t, err, types.ErrCommitConflict)
		require.NotErrorIs(t, err, types.ErrOutcomeUnknown, "a refusal is no unknown outcome")
		require.Equal(t, "1", string(a.get(t, commitKey).Value))
		env.WaitFor(time.Second, "OnLost", func() bool { return len(g.history(a)) == 2 })
		_, err = a.Commit(t.Context(), term, 2, "n4", write("2", revs[0]))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
	})
}

type result struct {
	revs []uint64
	err  error
	at   time.Time
}

// commitSlowly commits over a network with 300 ms each way: the batch is stored after 300 ms and answered after 600 ms. OnLost
// waits for the commit, as one does that waits for the calculator to have stopped.
func commitSlowly(a *member, ctx context.Context, term uint64) <-chan result {
	a.Gate().Delay(300 * time.Millisecond)
	out, returned := make(chan result, 1), make(chan struct{})
	a.onLost = func() { <-returned }
	go func() {
		defer close(returned)
		revs, err := a.Commit(ctx, term, 1, "n1", write("1", 0))
		out <- result{revs, err, time.Now()}
	}()
	return out
}

func TestUnknownOutcomeThatLanded(t *testing.T) {
	for name, lose := range map[string]func(*natstest.Gate){
		"the answer is held": func(g *natstest.Gate) { g.Hold(natstest.FromServer); time.Sleep(4 * time.Second); g.Heal() },
		"the answer is lost": func(g *natstest.Gate) { g.Cut(); time.Sleep(time.Second); g.Heal() },
	} {
		t.Log(name)
		led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
			term := a.term(t)
			out := commitSlowly(a, t.Context(), term)
			time.Sleep(450 * time.Millisecond)
			lose(a.Gate())
			r := <-out
			require.NoError(t, r.err)
			require.Equal(t, []uint64{observer.get(t, commitKey).Revision}, r.revs)
			require.Equal(t, term, a.term(t))
			info, _ := a.Leader()
			require.EqualValues(t, 1, info.CommitVersion)
			_, err := a.Commit(t.Context(), term, 2, "n2", write("2", r.revs[0]))
			require.NoError(t, err)
			require.Len(t, g.history(a), 1)
		})
	}
}

func TestUnknownOutcomeThatNeverLands(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		out := commitSlowly(a, t.Context(), term)
		time.Sleep(150 * time.Millisecond) // the batch is under way
		a.Gate().Cut()
		time.Sleep(time.Second)
		a.Gate().Heal()
		r := <-out
		require.Error(t, r.err)
		for _, kind := range []error{types.ErrLeadershipLost, types.ErrCommitConflict, types.ErrOutcomeUnknown} {
			require.NotErrorIs(t, r.err, kind, "it is known that nothing was written")
		}
		t.Log(r.err)
		_, err := observer.store.Get(t.Context(), commitKey)
		require.ErrorIs(t, err, kv.ErrNotFound)
		require.Equal(t, term, a.term(t))
		_, err = a.Commit(t.Context(), term, 1, "n2", write("1", 0))
		require.NoError(t, err)
	})
}

// The batch is held on the way, and arrives when the outcome has been decided.
func TestBatchThatArrivesLateIsRefused(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		out := commitSlowly(a, t.Context(), term)
		time.Sleep(150 * time.Millisecond)
		a.Gate().Hold(natstest.ToServer)
		r := <-out
		require.ErrorIs(t, r.err, types.ErrLeadershipLost)
		require.ErrorIs(t, r.err, types.ErrOutcomeUnknown)
		require.Empty(t, observer.silences())
		env.WaitFor(2*lease, "expiry", func() bool { return observer.get(t, Key).Absent() })
		a.Gate().Heal()
		env.WaitFor(2*lease, "a leads again", leads(a))
		time.Sleep(5 * time.Second)
		_, err := observer.store.Get(t.Context(), commitKey)
		require.ErrorIs(t, err, kv.ErrNotFound)
		require.Len(t, g.history(a), 3)
	})
}

func TestCommitHonoursItsContextAndIsResolvedBeforeTheNext(t *testing.T) {
	led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
		term := a.term(t)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		r := <-commitSlowly(a, ctx, term)
		require.ErrorIs(t, r.err, types.ErrOutcomeUnknown)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, 400*time.Millisecond, r.at.Sub(start))
		a.Gate().Delay(0)
		_, err := a.Commit(t.Context(), term, 2, "n2", write("2", 0))
		require.ErrorIs(t, err, types.ErrCommitConflict, "the first one had landed")
		_, err = a.Commit(t.Context(), term, 2, "n2", write("2", observer.get(t, commitKey).Revision))
		require.NoError(t, err)
	})
}

// Whoever stops or withdraws has no commit under way afterwards, whatever moment of the commit it is.
func TestNoCommitAfterWithdrawal(t *testing.T) {
	for name, leave := range map[string]func(*member, context.Context) error{
		"stop":     func(m *member, ctx context.Context) error { return m.Stop(ctx) },
		"withdraw": func(m *member, ctx context.Context) error { return m.Withdraw(ctx) },
	} {
		for at := 50 * time.Millisecond; at < 700*time.Millisecond; at += 100 * time.Millisecond {
			led(t, func(t *testing.T, env *natstest.Env, g *group, a, observer *member) {
				term := a.term(t)
				out := commitSlowly(a, t.Context(), term)
				time.Sleep(at)
				require.NoError(t, leave(a, t.Context()), name)
				r := <-out
				require.False(t, r.at.After(time.Now()))
				_, err := observer.store.Get(t.Context(), commitKey)
				landed := err == nil
				require.True(t, observer.get(t, Key).Absent(), "the key is released, also at the revision of an unknown outcome")
				if r.err == nil {
					require.True(t, landed)
				} else {
					require.ErrorIs(t, r.err, types.ErrLeadershipLost)
				}
				_, err = a.Commit(t.Context(), term, 2, "n2", write("2", 0))
				require.ErrorIs(t, err, types.ErrLeadershipLost)
				time.Sleep(time.Minute)
				_, err = observer.store.Get(t.Context(), commitKey)
				require.Equal(t, landed, err == nil, "nothing lands later")
			})
		}
	}
}
