package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// commitValue is what the members of these tests commit.
type commitValue struct {
	Term    uint64
	Version int64
	Nonce   string
}

// ledger compares what Commit returned with what the server stored, as an undisturbed observer saw it on the live subject.
type ledger struct {
	mu       sync.Mutex
	landed   map[string]uint64 // nonce: revision of the commit key
	values   map[string]commitValue
	last     commitValue
	leader   kv.Entry
	problems []string
	ok       map[string]uint64
	refused  map[string]error
	unknown  int
}

func newLedger(t *testing.T, g *group, c *natstest.Client) *ledger {
	l := &ledger{landed: map[string]uint64{}, values: map[string]commitValue{}, ok: map[string]uint64{}, refused: map[string]error{}}
	_, err := c.Conn().Subscribe(kv.LiveSubject(g.namespace, ">"), func(m *nats.Msg) {
		if e, err := kv.ParseLive(g.namespace, m); err == nil {
			l.stored(e)
		}
	})
	require.NoError(t, err)
	require.NoError(t, c.Conn().Flush())
	return l
}

func (l *ledger) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// stored checks promise P2: versions grow, terms never go back, and a commit follows directly on a renewal of its own term.
func (l *ledger) stored(e kv.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Key == Key {
		l.leader = e
	}
	if e.Key != commitKey {
		return
	}
	var v commitValue
	if err := json.Unmarshal(e.Value, &v); err != nil {
		l.problem("%v", err)
	}
	if v.Version <= l.last.Version || v.Term < l.last.Term {
		l.problem("commit %+v after %+v", v, l.last)
	}
	l.last = v
	l.landed[v.Nonce], l.values[v.Nonce] = e.Revision, v
	r, err := decode(l.leader)
	if err != nil || l.leader.Revision != e.Revision-1 || r.Nonce != v.Nonce || r.Term != v.Term && l.leader.Revision != v.Term || r.CommitVersion != v.Version {
		l.problem("commit %+v at %d after leader key %+v at %d", v, e.Revision, r, l.leader.Revision)
	}
}

func (l *ledger) returned(nonce string, revs []uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.ok[nonce] = revs[0]
	case errors.Is(err, types.ErrOutcomeUnknown):
		l.unknown++
	default:
		l.refused[nonce] = err
	}
}

// complete reports whether everything that was reported as written has been heard.
func (l *ledger) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for nonce := range l.ok {
		if l.landed[nonce] == 0 {
			return false
		}
	}
	return true
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.problems)
	for nonce, rev := range l.ok {
		require.Equal(t, l.landed[nonce], rev, "%s was reported as written", nonce)
	}
	for nonce, err := range l.refused {
		require.NotContains(t, l.landed, nonce, "%v", err)
	}
}

// commitNow commits as a publisher does: on what it reads.
func (m *member) commitNow(ctx context.Context, l *ledger, nonce string) error {
	term, ok := m.Leading()
	if !ok {
		return types.ErrNotLeader
	}
	e, err := m.store.Get(ctx, commitKey)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	v := commitValue{Term: term.Revision, Version: 1, Nonce: nonce}
	if e.Value != nil {
		var last commitValue
		if err := json.Unmarshal(e.Value, &last); err != nil {
			return err
		}
		v.Version = last.Version + 1
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	revs, err := m.Commit(ctx, term.Revision, v.Version, nonce, []kv.Write{
		{Key: commitKey, Value: raw, Expect: e.Revision},
		{Key: "assignment._commit_log." + nonce, Value: raw, TTL: time.Minute},
	})
	l.returned(nonce, revs, err)
	return err
}

// disturb makes one network trouble after the other, until ctx ends.
func (m *member) disturb(ctx context.Context, rnd *rand.Rand) {
	for pause(ctx, 5*time.Second+time.Duration(rnd.Int64N(int64(70*time.Second)))) {
		d := 100*time.Millisecond + time.Duration(rnd.Int64N(int64(25*time.Second)))
		switch rnd.IntN(8) {
		case 0, 1:
			m.Gate().Cut()
		case 2:
			m.Gate().Hold(natstest.FromServer)
		case 3:
			m.Gate().Hold(natstest.ToServer)
		case 4:
			m.Gate().Lose(natstest.Both)
		case 5:
			m.Gate().Delay(time.Duration(rnd.Int64N(int64(time.Second))))
		case 6:
			m.Gate().Drop()
		case 7:
			m.SetCandidate(m.holder, false) // with a network that works: a release
		}
		pause(ctx, d)
		m.Gate().Heal()
		m.Gate().Delay(0)
		m.SetCandidate(m.holder, true)
	}
}

func TestOneLeaderThroughAnHourOfTrouble(t *testing.T) {
	natstest.Long(t)
	for _, seed := range []uint64{rand.Uint64() % 1e6} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			g := newGroup(t)
			l := newLedger(t, g, env.Connect("observer"))
			names := []string{"a", "b", "c", "d", "e"}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i, name := range names {
				m := g.join(env.Connect(name))
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() { m.disturb(ctx, rnd) })
				commits := rand.New(rand.NewPCG(seed, uint64(i+100)))
				wg.Go(func() {
					for n := 0; pause(ctx, time.Duration(commits.Int64N(int64(3*time.Second)))); n++ {
						call, cancel := context.WithTimeout(ctx, time.Duration(commits.Int64N(int64(20*time.Second))))
						_ = m.commitNow(call, l, fmt.Sprintf("%s-%d", name, n))
						cancel()
					}
				})
			}
			stop := g.watch(100 * time.Millisecond)
			var without time.Duration
			for range 3600 * 2 {
				time.Sleep(500 * time.Millisecond)
				if g.leader() == nil {
					without += 500 * time.Millisecond
				}
			}
			cancel()
			wg.Wait()
			env.WaitFor(lease+500*time.Millisecond, "a leader, when the trouble is over", func() bool { return g.leader() != nil })
			require.NoError(t, g.leader().commitNow(t.Context(), l, "last"))
			stop()
			time.Sleep(time.Second)
			terms := 0
			for _, e := range g.events {
				if e.began {
					terms++
				}
			}
			t.Logf("seed %d: %d terms, %v without a leader, %d commits landed: %d known written, %d known not written, %d unknown",
				seed, terms, without, len(l.landed), len(l.ok), len(l.refused), l.unknown)
			require.Greater(t, terms, 10)
			require.Greater(t, len(l.ok), 100)
			g.requireClean()
			l.check(t)
		})
	}
}
