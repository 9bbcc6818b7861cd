package assignment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// gcOf returns a collector that was not started. Its values are garbage after an hour.
func (g *pubGroup) gcOf(p *AssignmentPublisher, change ...func(*CommitGCConfig)) *CommitGC {
	cfg := CommitGCConfig{Publisher: p, Retention: time.Hour, KeepCommits: 2}
	for _, f := range change {
		f(&cfg)
	}
	gc, err := NewCommitGC(cfg)
	require.NoError(g.t, err)
	return gc
}

// pass lets d go by, and makes a pass that must succeed.
func (g *pubGroup) pass(gc *CommitGC, l *termLease, d time.Duration) GCResult {
	g.t.Helper()
	require.NoError(g.t, backoff.Sleep(g.t.Context(), d))
	require.NoError(g.t, l.renew(g.t.Context()))
	r, err := gc.RunOnce(g.t.Context())
	require.NoError(g.t, err)
	return r
}

// needed returns every key that the commits refer to, chunks included, sorted.
func (g *pubGroup) needed(commits ...types.AssignmentCommit) []string {
	g.t.Helper()
	all := make(map[string]struct{})
	for _, c := range commits {
		refs, err := record.FetchIndex(g.t.Context(), record.StoreGetter(g.store), &c)
		require.NoError(g.t, err)
		maps.Copy(all, commitKeys(&c, refs))
	}
	for _, k := range slices.Collect(maps.Keys(all)) {
		e, err := g.store.Get(g.t.Context(), k)
		require.NoError(g.t, err)
		chunks, err := record.ChunkKeys(e.Value)
		require.NoError(g.t, err)
		for _, c := range chunks {
			all[c] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (g *pubGroup) stored() []string {
	keys := append(g.keys(record.PayloadPrefix), g.keys(record.ChunkPrefix)...)
	slices.Sort(keys)
	return keys
}

// withParked returns the state with another parked list.
func withParked(s *plan.State, name string) *plan.State {
	c := *s
	c.Parked = []types.ParkedEntry{{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition(name)}}}
	return &c
}

func TestGCConfigNamesEveryFault(t *testing.T) {
	_, err := NewCommitGC(CommitGCConfig{Interval: -1, Retention: -1, KeepCommits: -1, MaxGarbage: -1})
	require.ErrorIs(t, err, types.ErrInvalidConfig)
	for _, name := range []string{"Publisher", "Interval", "Retention", "KeepCommits", "MaxGarbage"} {
		require.ErrorContains(t, err, name)
	}
}

func TestGCDeletesExactlyWhatNobodyNeeds(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		count := &pubCounter{}
		p, l, _ := g.leadOn(env.Connect("a"), counted(count))
		// 40 workers in two shards, and a parked list each; the first worker's payload changes each time, and one
		// commit has a payload in chunks.
		var commits []types.AssignmentCommit
		state := spread(p.NextVersion(), 1, 40, partitions(80))
		for i := range 6 {
			state = withParked(touch(state, p.NextVersion(), 0), fmt.Sprint("x", i))
			if i == 1 || i == 4 {
				state = withBig(state, int64(i+1))
			}
			commits = append(commits, g.publish(p, state))
		}
		applied := commits[1].Version
		gc := g.gcOf(p, func(c *CommitGCConfig) { c.Applied = func() []int64 { return []int64{applied} } })

		all := g.stored()
		require.Greater(t, len(g.keys(record.ChunkPrefix)), 3)
		r := g.pass(gc, l, 0)
		require.Equal(t, all, g.stored(), "nothing is old enough")
		require.Equal(t, 3, r.Deleted, "but logs")
		require.Equal(t, 3, r.Logs)

		r = g.pass(gc, l, time.Hour+time.Second)
		want := g.needed(commits[1], commits[4], commits[5])
		require.Equal(t, want, g.stored())
		require.Equal(t, GCResult{Kept: len(want), Deleted: len(all) - len(want), Logs: 3}, r)
		require.Equal(t, r.Deleted+3, count.deleted)
		for i, c := range commits {
			require.Equal(t, i == 1 || i >= 4, slices.Contains(g.keys(record.LogPrefix), record.LogKey(c.Version)))
		}
		g.readable()

		// The worker has moved on: its commit goes, chunks and all.
		applied = commits[5].Version
		r = g.pass(gc, l, 0)
		require.Equal(t, g.needed(commits[4], commits[5]), g.stored())
		require.Equal(t, 2, r.Logs)
		require.Zero(t, g.pass(gc, l, 0).Deleted)
	})
}

// withBig gives one more worker a payload that needs chunks.
func withBig(s *plan.State, epoch int64) *plan.State {
	big := spread(s.Version, epoch, 1, incompressible(3_200))
	big.Slices[0].Worker = "x-big"
	c := *s
	c.Slices = slices.DeleteFunc(slices.Clone(c.Slices), func(s plan.Slice) bool { return s.Worker == "x-big" })
	c.Slices = append(c.Slices, big.Slices[0])
	return &c
}

func TestGCKeepsTheRetention(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		gc := g.gcOf(p, func(c *CommitGCConfig) { c.KeepCommits = 1; c.MaxGarbage = 5 })
		state := spread(p.NextVersion(), 1, 1, partitions(2))
		for range 4 {
			state = touch(state, p.NextVersion(), 0)
			g.publish(p, state)
			require.NoError(t, backoff.Sleep(t.Context(), 10*time.Minute))
		}
		require.Equal(t, GCResult{Kept: 1, Waiting: 3, Deleted: 3, Logs: 1}, g.pass(gc, l, 0))
		require.Equal(t, GCResult{Kept: 1, Waiting: 2, Deleted: 1, Logs: 1}, g.pass(gc, l, 21*time.Minute), "one is an hour old")
		for range 7 {
			state = touch(state, p.NextVersion(), 0)
			g.publish(p, state)
		}
		r := g.pass(gc, l, 0)
		require.Equal(t, GCResult{Kept: 1, Waiting: 5, Deleted: 7 + 4, Logs: 1}, r, "too much garbage: the oldest go")
		g.readable()
	})
}

func TestKeysStayBounded(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		gc, err := NewCommitGC(CommitGCConfig{Publisher: p, Retention: 2 * time.Hour, MaxGarbage: 100})
		require.NoError(t, err)
		state := spread(p.NextVersion(), 1, 10, partitions(20))
		most := 0
		for i := range 500 {
			state = touch(state, p.NextVersion(), i%10)
			g.publish(p, state)
			require.NoError(t, backoff.Sleep(t.Context(), time.Second))
			if i%10 == 9 {
				g.pass(gc, l, 0)
				most = max(most, len(g.stored())+len(g.keys(record.LogPrefix)))
			}
		}
		// 10 payloads of the last commit, one more and a log for each of the 10 that are kept, and 100.
		require.LessOrEqual(t, most, 10+10*2+100)
		require.Greater(t, most, 100)
		g.readable()

		r := g.pass(gc, l, 2*time.Hour)
		require.Zero(t, r.Waiting)
		require.LessOrEqual(t, len(g.stored()), 10+10)
		require.NoError(t, backoff.Sleep(t.Context(), 25*time.Minute)) // markers end too
		entries, err := g.store.ListKeys(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(entries), 10+10*2+2)
	})
}

func TestGCOfALeaderThatIsNone(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		g.publish(p, state)
		for range 3 {
			state = touch(state, p.NextVersion(), 0)
			g.publish(p, state)
		}
		require.NoError(t, backoff.Sleep(t.Context(), 2*time.Hour))
		require.NoError(t, l.renew(t.Context()))
		before := g.stored()

		q, m, _ := g.leadOn(env.Connect("b"))
		r, err := g.gcOf(p).RunOnce(t.Context())
		require.ErrorIs(t, err, types.ErrLeadershipLost, "the former one")
		require.Zero(t, r.Deleted)
		require.NotZero(t, r.Failed)
		require.Equal(t, GCResult{}, g.pass(g.gcOf(q), m, 0), "what it read may be stale")
		require.Equal(t, before, g.stored())
		_, err = p.Publish(t.Context(), input(at(state, p.NextVersion())))
		require.ErrorIs(t, err, types.ErrLeadershipLost)

		g.publish(q, at(state, q.NextVersion()))
		require.NotZero(t, g.pass(g.gcOf(q), m, 0).Deleted)
		g.readable()

		// A conflict means that the last commit is not what this leader takes it for.
		g.overwrite(record.CommitKey, []byte("{}"))
		_, err = q.Publish(t.Context(), input(touch(state, q.NextVersion(), 1)))
		require.ErrorIs(t, err, types.ErrCommitConflict)
		require.Equal(t, GCResult{}, g.pass(g.gcOf(q), m, 2*time.Hour))

		g.delete(LeaderKey)
		_, err = g.gcOf(p).RunOnce(t.Context())
		require.ErrorIs(t, err, types.ErrLeadershipLost)
	})
}

// Whatever happens between the listing and the deletion: the callback runs in between.
func TestGCAgainstRacingWrites(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		between := func() {}
		gc := g.gcOf(p, func(c *CommitGCConfig) {
			c.KeepCommits = 1
			c.Applied = func() []int64 { between(); return nil }
		})
		old := spread(p.NextVersion(), 1, 4, partitions(8))
		g.publish(p, old)
		state := old
		for i := range 4 {
			state = touch(state, p.NextVersion(), i)
			g.publish(p, state)
		}

		// A publish adopts two of the values that are about to be deleted, and another drops one of them again.
		between = func() {
			back := at(state, p.NextVersion())
			back.Slices = slices.Clone(back.Slices)
			back.Slices[0], back.Slices[1] = old.Slices[0], old.Slices[1]
			g.publish(p, back)
			back = at(back, p.NextVersion())
			back.Slices = slices.Clone(back.Slices)
			back.Slices[1] = state.Slices[1]
			g.publish(p, back)
			state = back
		}
		r := g.pass(gc, l, 2*time.Hour)
		require.Equal(t, 1, r.Failed, "the one that was dropped again has been written since")
		g.readable()

		// A log is not what was listed: nothing is deleted.
		state = touch(state, p.NextVersion(), 3)
		g.publish(p, state)
		before := g.stored()
		between = func() { g.overwrite(record.LogKey(state.Version), []byte("other")) }
		require.NoError(t, backoff.Sleep(t.Context(), 2*time.Hour))
		require.NoError(t, l.renew(t.Context()))
		_, err := gc.RunOnce(t.Context())
		require.ErrorIs(t, err, errStaleRead)
		require.Equal(t, before, g.stored())

		// A log that is damaged keeps nothing, the last commit does.
		between = func() {}
		g.pass(gc, l, 0)
		require.Equal(t, g.needed(*p.LastCommit()), g.stored())
	})
}

func TestGCKeepsWhatAnUndecidedCommitNeeds(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		gc := g.gcOf(p, func(c *CommitGCConfig) { c.KeepCommits = 1 })
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		g.publish(p, state)
		l.lose = func(func() error) error { return types.ErrOutcomeUnknown }
		_, err := p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.ErrorIs(t, err, types.ErrOutcomeUnknown)
		l.lose = nil
		before := g.stored()
		require.Zero(t, g.pass(gc, l, 2*time.Hour).Deleted)
		require.Equal(t, before, g.stored())
		g.publish(p, touch(state, p.NextVersion(), 1))
		require.NotZero(t, g.pass(gc, l, 2*time.Hour).Deleted)
		g.readable()
	})
}

// Somebody deletes values that the last commit refers to.
func TestGCRestoresWhatIsMissing(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		gc := g.gcOf(p, func(c *CommitGCConfig) { c.KeepCommits = 1 })
		old := withBig(withParked(spread(p.NextVersion(), 1, 40, partitions(80)), "x"), 1)
		g.publish(p, old)
		state := touch(old, p.NextVersion(), 0)
		c := g.publish(p, state)
		before := g.stored()
		g.delete(record.PayloadKey(g.anyRef(c).PayloadHash))
		g.delete(record.PayloadKey(p.base().refs["x-big"].PayloadHash))
		g.delete(record.PayloadKey(c.Shards[1].Hash))
		g.delete(record.PayloadKey(c.Parked))
		require.Zero(t, g.pass(gc, l, 2*time.Hour).Deleted)
		require.Equal(t, before, g.stored())
		g.readable()
		require.NotZero(t, g.pass(gc, l, 0).Deleted)
		g.readable()
	})
}

func TestGCNeedsACompleteListing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, _, _ := g.leadOn(c)
		g.publish(p, spread(p.NextVersion(), 1, 2, partitions(4)))
		c.Gate().Hold(natstest.FromServer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.gcOf(p).RunOnce(ctx)
		require.ErrorIs(t, err, types.ErrPartialListing)
		c.Gate().Heal()
	})
}
