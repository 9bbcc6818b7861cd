package assignment

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// follows is a follower with everything around it recorded. Nothing is heard but what the test delivers.
type follows struct {
	types.NopMetrics
	f     *Follower
	store *kv.Store

	mu     sync.Mutex
	got    []Followed
	broken int
	stages []string
	reads  int
	unread []unread
}

// unread is a call of FollowerConfig.Unread.
type unread struct {
	err    error
	inARow int
	since  time.Time
}

const silence = 5 * time.Second

func newFollows(t *testing.T, g *pubGroup, env *natstest.Env) *follows {
	x := &follows{store: g.open(env.Connect("follower"))}
	x.f = NewFollower(FollowerConfig{
		Store: x.store, Silence: silence, RequestTimeout: time.Second,
		Apply:      func(f Followed) { x.locked(func() { x.got = append(x.got, f) }) },
		Read:       func(kv.Entry) { x.locked(func() { x.reads++ }) },
		FeedBroken: func() { x.locked(func() { x.broken++ }) },
		Unread: func(err error, inARow int, since time.Time) {
			x.locked(func() { x.unread = append(x.unread, unread{err, inARow, since}) })
		},
		Metrics: x, Logger: slog.New(slog.DiscardHandler),
	})
	x.f.Start()
	t.Cleanup(x.f.Stop)
	return x
}

func (x *follows) CommitRejected(_ int64, stage string) {
	x.locked(func() { x.stages = append(x.stages, stage) })
}

func (x *follows) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

func (x *follows) versions() []int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]int64, len(x.got))
	for i, f := range x.got {
		out[i] = f.Version
	}
	return out
}

func (x *follows) last() Followed {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got[len(x.got)-1]
}

// hear delivers the present entry of the commit key as the live feed does.
func (x *follows) hear(t *testing.T) kv.Entry {
	e, err := x.store.Get(t.Context(), CommitKey)
	require.NoError(t, err)
	x.f.Observe(e, 0)
	return e
}

// worker0 is the incarnation that the commits of spread list first.
func worker0(g *pubGroup) types.Holder {
	c, _ := g.readable()
	return c.Refs[0].Holder()
}

func withFollower(t *testing.T, f func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows)) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("leader"))
		g.publish(p, spread(p.NextVersion(), 1, 3, partitions(10)))
		x := newFollows(t, g, env)
		x.f.Begin(worker0(g))
		env.WaitFor(time.Second, "the present commit is applied", func() bool { return len(x.versions()) == 1 })
		f(t, env, g, p, x)
	})
}

func TestFollowerAppliesWhatItHears(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		state := spread(p.NextVersion(), 2, 3, partitions(20))
		g.publish(p, state)
		x.hear(t)
		env.WaitFor(100*time.Millisecond, "applied", func() bool { return x.last().Version == state.Version })
		require.Len(t, x.last().Entries, 7)
		require.Equal(t, record.SetDigest(x.last().Entries), x.last().Digest)
		require.Equal(t, state.Version, x.f.Highest())
	})
}

// A worker that the commit does not list, or lists under another incarnation, applies it as empty, so that it can acknowledge it.
func TestFollowerAppliesAsEmptyWhatDoesNotListIt(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, _ *AssignmentPublisher, x *follows) {
		for n, h := range []types.Holder{{Worker: worker0(g).Worker, Incarnation: "another"}, {Worker: "stranger", Incarnation: "s"}} {
			x.f.Begin(h)
			env.WaitFor(time.Second, "applied for the new incarnation", func() bool { return len(x.versions()) == n+2 })
			require.Equal(t, h, x.last().Holder)
			require.Empty(t, x.last().Entries)
			require.Empty(t, x.last().Digest)
		}
	})
}

// Row 41: whatever a read returns, no worker goes back.
func TestOlderReadChangesNothing(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		old, err := x.store.Get(t.Context(), CommitKey)
		require.NoError(t, err)
		g.publish(p, spread(p.NextVersion(), 2, 3, partitions(20)))
		x.hear(t)
		env.WaitFor(100*time.Millisecond, "applied", func() bool { return len(x.versions()) == 2 })
		x.f.Observe(old, 0) // as a lagging replica would answer
		x.f.Reconnected()
		time.Sleep(time.Minute)
		require.Len(t, x.versions(), 2)
	})
}

// Row 4: a feed that brings nothing although the store changes is told from a quiet one, and what it missed is read.
func TestSilentFeedIsNoticed(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		x.hear(t)
		time.Sleep(10 * time.Minute)
		require.Zero(t, x.broken, "quiet")
		state := spread(p.NextVersion(), 2, 3, partitions(20))
		g.publish(p, state) // not heard
		began := time.Now()
		env.WaitFor(silence+100*time.Millisecond, "read", func() bool { return x.last().Version == state.Version })
		t.Logf("found after %v", time.Since(began))
		require.Equal(t, 1, x.broken)
	})
}

// The leader's renewal announces the commit: where it does not come, it is read at once rather than after silence.
func TestAnnouncedCommitIsRead(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		state := spread(p.NextVersion(), 2, 3, partitions(20))
		g.publish(p, state)
		e, err := x.store.Get(t.Context(), LeaderKey)
		require.NoError(t, err)
		x.f.Observe(e, state.Version)
		env.WaitFor(2*announced, "read", func() bool { return x.last().Version == state.Version })
	})
}

// Each stage of the verification has its own name, changes nothing, and is tried again until the value is right.
func TestFollowerRetriesWhatItCannotVerify(t *testing.T) {
	for stage, damage := range map[string][]byte{
		record.Stage(record.ErrCommitPayloadFetch):        nil,
		record.Stage(record.ErrCommitPayloadDecompress):   []byte("\x1f\x8bgarbage"),
		record.Stage(record.ErrCommitPayloadHashMismatch): packedRaw(`{"schema":1,"entries":[]}`),
	} {
		t.Run(stage, func(t *testing.T) {
			withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
				state := spread(p.NextVersion(), 2, 3, partitions(20))
				c := g.publish(p, state)
				key := record.PayloadKey(c.Refs[0].PayloadHash)
				good, err := x.store.Get(t.Context(), key)
				require.NoError(t, err)
				if damage == nil {
					g.delete(key)
				} else {
					g.overwrite(key, damage)
				}
				x.hear(t)
				time.Sleep(10 * time.Second)
				require.Len(t, x.versions(), 1, "nothing changes")
				require.Contains(t, x.stages, stage)
				require.Less(t, len(x.stages), 30, "with backoff")
				g.overwrite(key, good.Value)
				env.WaitFor(silence+time.Second, "applied", func() bool { return x.last().Version == state.Version })
			})
		})
	}
}

// A commit that cannot be verified does not hold up the next one.
func TestFollowerCoalescesToTheNewest(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		c := g.publish(p, spread(p.NextVersion(), 2, 3, partitions(20)))
		g.delete(record.PayloadKey(c.Refs[0].PayloadHash))
		x.hear(t)
		time.Sleep(time.Second)
		state := spread(p.NextVersion(), 3, 3, partitions(30))
		g.publish(p, state)
		x.hear(t)
		env.WaitFor(100*time.Millisecond, "applied", func() bool { return x.last().Version == state.Version })
		require.Len(t, x.versions(), 2)
	})
}

// What the leader announces and nobody has is looked for ever more rarely, however often it is announced again.
func TestAnnouncedCommitThatDoesNotExist(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		e, err := x.store.Get(t.Context(), LeaderKey)
		require.NoError(t, err)
		x.locked(func() { x.reads = 0 })
		for range 300 {
			e.Revision++
			x.f.Observe(e, types.MaxVersion-1)
			time.Sleep(time.Second)
		}
		x.mu.Lock()
		reads := x.reads
		x.mu.Unlock()
		t.Logf("%d reads of two keys in five minutes", reads/2)
		require.Less(t, reads/2, 5*60/4)
		require.Empty(t, x.unread)

		state := spread(p.NextVersion(), 2, 3, partitions(20)) // a right one is looked for at once again
		g.publish(p, state)
		e.Revision++
		x.f.Observe(e, state.Version)
		env.WaitFor(2*announced, "read", func() bool { return x.last().Version == state.Version })
	})
}

// A commit that cannot be read is tried with growing waits, which nothing that is heard cuts short, and told each time; so is its end.
func TestUnreadableCommitIsTold(t *testing.T) {
	withFollower(t, func(t *testing.T, env *natstest.Env, g *pubGroup, p *AssignmentPublisher, x *follows) {
		renewal, err := x.store.Get(t.Context(), LeaderKey)
		require.NoError(t, err)
		began := time.Now()
		x.f.Observe(kv.Entry{Key: CommitKey, Revision: 1 << 40, Value: []byte(`{"schema":2}`)}, 0)
		for range 600 {
			renewal.Revision++
			x.f.Observe(renewal, 0)
			time.Sleep(100 * time.Millisecond)
		}
		x.locked(func() {
			require.Less(t, len(x.unread), 40, "in a minute")
			require.Greater(t, len(x.unread), 5)
			for i, u := range x.unread {
				require.ErrorIs(t, u.err, types.ErrUnsupportedSchema)
				require.Equal(t, i+1, u.inARow)
				require.WithinDuration(t, began, u.since, 100*time.Millisecond)
			}
		})
		require.True(t, x.f.Unread())
		x.f.Observe(kv.Entry{Key: CommitKey, Revision: 1<<40 + 1, Value: []byte(`garbage`)}, 0)
		time.Sleep(10 * time.Millisecond)
		x.locked(func() {
			require.ErrorIs(t, x.unread[len(x.unread)-1].err, types.ErrMalformed, "another one is tried at once")
		})
		state := spread(p.NextVersion(), 2, 3, partitions(20))
		g.publish(p, state)
		good, err := x.store.Get(t.Context(), CommitKey)
		require.NoError(t, err)
		x.f.Observe(good, 0)
		env.WaitFor(100*time.Millisecond, "applied", func() bool { return x.last().Version == state.Version && !x.f.Unread() })
		x.locked(func() { require.Equal(t, unread{}, x.unread[len(x.unread)-1]) })
	})
}

// A commit of a newer major schema is refused by name and acknowledged as nothing.
func TestFollowerRefusesANewerSchema(t *testing.T) {
	withFollower(t, func(t *testing.T, _ *natstest.Env, _ *pubGroup, _ *AssignmentPublisher, x *follows) {
		x.f.Observe(kv.Entry{Key: CommitKey, Revision: 1 << 40, Value: []byte(fmt.Sprintf(`{"schema":%d,"version":99999999999999}`, types.CommitSchema+1))}, 0)
		time.Sleep(time.Second)
		require.Len(t, x.versions(), 1)
		require.Contains(t, x.stages, "commit")
		_, err := record.DecodeCommit([]byte(`{"schema":2,"version":1}`))
		require.True(t, errors.Is(err, types.ErrUnsupportedSchema))
	})
}

func TestFollowerStopsTwice(t *testing.T) {
	x := NewFollower(FollowerConfig{Silence: silence})
	x.Stop()
	x.Stop()
}

func packedRaw(raw string) []byte {
	root, _, err := record.Pack([]byte(raw))
	if err != nil {
		panic(err)
	}
	return root.Value
}
