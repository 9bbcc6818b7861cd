package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestCommitThatCannotBeRead(t *testing.T) {
	natstest.Long(t)
	newer := []byte(`{"schema":2,"version":99999999999999}`)
	cases := []struct {
		name  string
		spoil func(g *pubGroup, c types.AssignmentCommit)
	}{
		{"no commit at all", func(g *pubGroup, _ types.AssignmentCommit) { g.overwrite(record.CommitKey, []byte("{")) }},
		{"payload missing", func(g *pubGroup, c types.AssignmentCommit) { g.delete(record.PayloadKey(g.anyRef(c).PayloadHash)) }},
		{"payload damaged", func(g *pubGroup, c types.AssignmentCommit) {
			g.overwrite(record.PayloadKey(g.anyRef(c).PayloadHash), []byte("damage"))
		}},
		{"shard missing", func(g *pubGroup, c types.AssignmentCommit) { g.delete(record.PayloadKey(c.Shards[1].Hash)) }},
		{"parked list missing", func(g *pubGroup, c types.AssignmentCommit) { g.delete(record.PayloadKey(c.Parked)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				g := newPubGroup(t, env)
				p, _, _ := g.leadOn(env.Connect("a"))
				state := spread(p.NextVersion(), 1, 34, partitions(34))
				state.Parked = []types.ParkedEntry{{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("x")}}}
				commit := g.publish(p, state)
				c.spoil(g, commit)

				q, _ := g.lead(env.Connect("b"))
				_, err := q.Bootstrap(t.Context())
				require.ErrorIs(t, err, ErrCommitUnreadable)
				_, err = q.Publish(t.Context(), input(at(state, q.NextVersion())))
				require.ErrorIs(t, err, ErrNotBootstrapped)

				require.NoError(t, q.StartFromScratch())
				require.Nil(t, q.LastCommit())
				next := at(spread(0, 2, 34, partitions(34)), q.NextVersion())
				require.Greater(t, next.Version, commit.Version)
				g.publish(q, next)
				g.readable()
			})
		})
	}
	t.Run("newer schema", func(t *testing.T) {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			g := newPubGroup(t, env)
			g.overwrite(record.CommitKey, newer)
			p, _ := g.lead(env.Connect("a"))
			_, err := p.Bootstrap(t.Context())
			require.ErrorIs(t, err, types.ErrUnsupportedSchema)
			require.ErrorIs(t, p.StartFromScratch(), ErrNotBootstrapped)
			require.Equal(t, int64(99999999999999+versionGap), p.NextVersion())
		})
	})
}

// A replica that lags for a second is not taken for a loss.
func TestBootstrapWaitsForALaggard(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 3, partitions(9))
		c := g.publish(p, state)
		key := record.PayloadKey(c.Refs[1].PayloadHash)
		e, err := g.store.Get(t.Context(), key)
		require.NoError(t, err)
		g.delete(key)
		back := time.AfterFunc(500*time.Millisecond, func() { g.overwrite(key, e.Value) })
		defer back.Stop()
		q, _ := g.lead(env.Connect("b"))
		got, err := q.Bootstrap(t.Context())
		require.NoError(t, err)
		requireState(t, state, got)
	})
}

// The store is put back to an older backup: the commit is older than what workers have applied.
func TestRestoredBackup(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		first := spread(p.NextVersion(), 1, 2, partitions(4))
		c1 := g.publish(p, first)
		var last types.AssignmentCommit
		for range 5 {
			last = g.publish(p, touch(first, p.NextVersion(), 0))
			g.delete(record.LogKey(last.Version))
		}
		raw, err := record.EncodeCommit(&c1)
		require.NoError(t, err)
		g.overwrite(record.CommitKey, raw)
		g.delete(LeaderKey)

		q, _, state := g.leadOn(env.Connect("b"))
		requireState(t, first, state)
		v := q.NextVersion(last.Version) // what live heartbeats have applied
		require.GreaterOrEqual(t, v, last.Version+versionGap)
		c := g.publish(q, touch(state, v, 1))
		require.Equal(t, v, c.Version)
	})
}
