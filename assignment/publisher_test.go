package assignment

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestPublisherConfigNamesEveryFault(t *testing.T) {
	_, err := NewAssignmentPublisher(PublisherConfig{HighestVersion: -1, KeepLog: time.Millisecond, Parallelism: -1, RequestTimeout: -1})
	require.ErrorIs(t, err, types.ErrInvalidConfig)
	for _, name := range []string{"Store", "Committer", "Holder", "Term", "HighestVersion", "KeepLog", "Parallelism", "RequestTimeout"} {
		require.ErrorContains(t, err, name)
	}
}

func TestFirstCommitAndBootstrapOfIt(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		woken := 0
		count := &pubCounter{}
		p, _, state := g.leadOn(env.Connect("a"), counted(count), func(c *PublisherConfig) { c.GCTrigger = func() { woken++ } })
		require.Nil(t, state)
		require.Nil(t, p.LastCommit())
		require.Zero(t, p.LastCommitRev())
		require.Zero(t, p.LastCommitObservedAt())
		require.Zero(t, p.LastRebalanceTime())

		want := spread(p.NextVersion(), 1, 3, partitions(10))
		want.Slices[2].GraceUntil = 77
		want.Parked = []types.ParkedEntry{{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("x")}, Reason: "nobody"}}
		in := input(want)
		in.SourceRevision, in.SourceRevisionKnown = 9, true
		c, err := p.Publish(t.Context(), in)
		require.NoError(t, err)

		require.Equal(t, want.Version, c.Version)
		require.Equal(t, 3, c.WorkerCount)
		require.Equal(t, 11, c.PartitionCount)
		require.Equal(t, 1, c.ParkedCount)
		require.Equal(t, uint64(9), c.SourceRevision)
		require.Zero(t, c.PreviousRevision)
		require.Equal(t, types.Holder{Worker: "a", Incarnation: "i-a"}, c.TermHolder)
		stored, rev := g.readable()
		require.Equal(t, c, stored)
		require.Equal(t, rev, p.LastCommitRev())
		require.Equal(t, c, *p.LastCommit())
		require.Equal(t, want.Version, p.CurrentVersion())
		require.Empty(t, p.LiveRefs())
		require.Less(t, time.Since(p.LastCommitObservedAt()), time.Second)
		require.Equal(t, p.LastRebalanceTime(), p.LastCommitObservedAt())
		require.Equal(t, 1, woken)
		require.Equal(t, pubCounter{created: 4, published: 1}, *count)

		e, err := g.store.Get(t.Context(), record.LogKey(c.Version))
		require.NoError(t, err)
		logged, err := record.DecodeCommit(e.Value)
		require.NoError(t, err)
		require.Equal(t, c, logged)
		require.Equal(t, rev+1, e.Revision, "one batch")

		p.LastCommit().Refs[0].WorkerID = "changed"
		require.Equal(t, "w0000", p.LastCommit().Refs[0].WorkerID, "a deep copy")

		q, _, state := g.leadOn(env.Connect("b"))
		requireState(t, want, state)
		require.Equal(t, int64(77), state.Slices[2].GraceUntil)
		require.Equal(t, c, *q.LastCommit())
		require.Equal(t, rev, q.LastCommitRev())
	})
}

func TestUnchangedSlicesCostNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		count := &pubCounter{}
		p, _, _ := g.leadOn(env.Connect("a"), counted(count))
		first := spread(p.NextVersion(), 1, 200, partitions(2000))
		c1 := g.publish(p, first)
		require.NotEmpty(t, c1.Shards)
		require.Empty(t, c1.Refs)
		require.Equal(t, 200+len(c1.Shards), count.created)
		value, err := record.EncodeCommit(&c1)
		require.NoError(t, err)
		require.Less(t, len(value), 8<<10)

		*count = pubCounter{}
		c2 := g.publish(p, touch(first, p.NextVersion(), 17))
		require.Equal(t, pubCounter{created: 2, published: 1}, *count, "one payload and its shard")
		differ := 0
		for i := range c1.Shards {
			if c1.Shards[i] != c2.Shards[i] {
				differ++
			}
		}
		require.Equal(t, 1, differ)

		// The next leader knows what is stored from having read it.
		q, _, state := g.leadOn(env.Connect("b"), counted(count))
		*count = pubCounter{}
		g.publish(q, at(state, q.NextVersion()))
		require.Equal(t, pubCounter{published: 1}, *count)
		g.readable()

		// Equal content in other memory is equal.
		*count = pubCounter{}
		g.publish(q, at(spread(0, 1, 200, partitions(2000)), q.NextVersion()))
		require.Equal(t, pubCounter{adopted: 2, published: 1}, *count, "the slice that was touched goes back, and is there still")
	})
}

func TestVersionsOnlyGrow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		now := time.Now().UnixMilli()
		require.Equal(t, now, p.NextVersion(), "the time, where nothing is known")
		require.Equal(t, now+versionGap, p.NextVersion(now), "above what others have seen")
		require.Equal(t, now, p.NextVersion(types.MaxVersion, math.MaxInt64), "nonsense is ignored")
		require.Equal(t, types.VersionLimit()-1, p.NextVersion(types.VersionLimit()-2), "what is left is used up one by one")
		require.Equal(t, types.VersionLimit(), p.NextVersion(types.VersionLimit()-1), "for which there is room a moment later")
		require.False(t, types.ValidVersion(types.VersionLimit()))

		v := p.NextVersion()
		s := spread(v, v, 2, partitions(4))
		g.publish(p, s)
		require.Equal(t, v+1, p.NextVersion(v, v-5), "one higher within a term")
		require.Equal(t, v+1, p.NextVersion(), "until it is used")
		require.Equal(t, v+9+versionGap, p.NextVersion(v+9), "somebody saw commits that are lost")
		_, err := p.Publish(t.Context(), input(at(s, v)))
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		g.publish(p, at(s, v+1))

		// The next term.
		q, _, _ := g.leadOn(env.Connect("b"))
		require.Equal(t, v+1+versionGap, q.NextVersion())
		g.publish(q, at(s, q.NextVersion()))
		high := q.CurrentVersion()
		require.Equal(t, v+1+versionGap, high)

		// The commit and the leader key are lost, a log remains, if only as a marker.
		g.delete(record.CommitKey)
		g.delete(LeaderKey)
		g.delete(record.LogKey(high))
		r, l := g.lead(env.Connect("c"))
		found, err := r.DiscoverHighestVersion(t.Context())
		require.NoError(t, err)
		require.Equal(t, high, found)
		// Only the leader key remembers.
		l.rev, err = g.store.Put(t.Context(), LeaderKey, l.value(high+100), l.rev, 0)
		require.NoError(t, err)
		found, err = r.DiscoverHighestVersion(t.Context())
		require.NoError(t, err)
		require.Equal(t, high+100, found)
		// Only this process remembers.
		s2, _ := g.lead(env.Connect("d"), func(c *PublisherConfig) { c.HighestVersion = high + 1000 })
		require.Equal(t, high+1000+versionGap, s2.NextVersion())
	})
}

// A number that is damage hides no other, wherever it lies.
func TestDamagedVersionHidesNoOther(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		v := p.NextVersion()
		g.publish(p, spread(v, v, 2, partitions(4)))
		_, err := g.store.Put(t.Context(), LeaderKey, l.value(math.MaxInt64), l.rev, 0)
		require.NoError(t, err)
		g.overwrite(record.LogKey(types.MaxVersion), []byte("x"))
		found, err := p.DiscoverHighestVersion(t.Context())
		require.NoError(t, err)
		require.Equal(t, v, found)
		require.Equal(t, v+1, p.NextVersion())
		q, _ := g.lead(env.Connect("b"), func(c *PublisherConfig) { c.HighestVersion = v })
		c := q.cfg
		for _, bad := range []int64{-1, types.MaxVersion, math.MaxInt64} {
			c.HighestVersion = bad
			_, err = NewAssignmentPublisher(c)
			require.ErrorIs(t, err, types.ErrInvalidConfig)
			require.ErrorContains(t, err, "HighestVersion")
		}
	})
}

func TestPublishRefusesBeforeItWrites(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l := g.lead(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		_, err := p.Publish(t.Context(), input(state))
		require.ErrorIs(t, err, ErrNotBootstrapped)
		require.ErrorIs(t, p.StartFromScratch(), ErrNotBootstrapped)
		_, err = p.Bootstrap(t.Context())
		require.NoError(t, err)

		_, err = p.Publish(t.Context(), PublishInput{})
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		in := input(state)
		in.Source = in.Source[1:]
		_, err = p.Publish(t.Context(), in)
		require.ErrorIs(t, err, types.ErrCoverageMismatch)
		in = input(state)
		in.Extra = make([]kv.Write, kv.MaxBatch)
		_, err = p.Publish(t.Context(), in)
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		_, err = p.Publish(t.Context(), input(spread(state.Version, 0, 2, partitions(4))))
		require.ErrorIs(t, err, types.ErrMalformed, "an owned partition without an epoch")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = p.Publish(ctx, input(state))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, l.commits)
		require.Empty(t, g.keys("assignment._payload."))
		g.publish(p, state) // the version is still free
	})
}

func TestNoCommitGoesOutAfterStop(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, l, _ := g.leadOn(c, func(c *PublisherConfig) { c.Parallelism = 1 })
		c.Gate().Delay(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Publish(ctx, input(spread(p.NextVersion(), 1, 20, partitions(20))))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, l.commits)
		require.NotEmpty(t, g.keys(record.PayloadPrefix), "it had begun")
		require.Empty(t, p.LiveRefs())
	})
}

func TestFormerLeaderCommitsNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		c1 := g.publish(p, state)
		g.leadOn(env.Connect("b"))
		_, err := p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.ErrorIs(t, err, types.ErrLeadershipLost)
		_, err = p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.ErrorIs(t, err, types.ErrLeadershipLost, "the term stays over")
		stored, _ := g.readable()
		require.Equal(t, c1, stored)
	})
}

func TestConflictNeedsAnotherBootstrap(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		c1 := g.publish(p, state)

		// An operator puts an older commit back.
		raw, err := json.Marshal(&c1)
		require.NoError(t, err)
		g.overwrite(record.CommitKey, raw)
		_, err = p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.ErrorIs(t, err, types.ErrCommitConflict)
		_, err = p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.ErrorIs(t, err, types.ErrCommitConflict)

		got, err := p.Bootstrap(t.Context())
		require.NoError(t, err)
		requireState(t, state, got)
		c2 := g.publish(p, touch(state, p.NextVersion(), 0))
		require.Equal(t, c1.Version+3, c2.Version, "no version was used twice")
		require.Empty(t, p.LiveRefs())
	})
}

func TestExtraWritesLandWithTheCommitOrNotAtAll(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		in := input(spread(p.NextVersion(), 1, 2, partitions(4)))
		in.Extra = []kv.Write{{Key: "assignment.w0000", Value: []byte("alias"), Any: true}, {Key: "assignment.w0001", Value: []byte("alias"), Any: true}}
		_, err := p.Publish(t.Context(), in)
		require.NoError(t, err)
		require.Len(t, g.keys("assignment."), 3) // with the commit

		in = input(touch(in.State, p.NextVersion(), 0))
		in.Extra = []kv.Write{{Key: "assignment.w0000", Value: []byte("other"), Any: true}, {Key: "assignment.w0001", Value: []byte("other"), Expect: 1}}
		_, err = p.Publish(t.Context(), in)
		require.ErrorIs(t, err, types.ErrCommitConflict)
		e, err := g.store.Get(t.Context(), "assignment.w0000")
		require.NoError(t, err)
		require.Equal(t, "alias", string(e.Value))

		require.NoError(t, p.CleanupAllAssignments(t.Context()))
		require.Equal(t, []string{record.CommitKey}, g.keys("assignment."))
		g.readable()
	})
}

func TestUnknownOutcome(t *testing.T) {
	for _, landed := range []bool{false, true} {
		name := map[bool]string{false: "lost", true: "landed"}[landed]
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				g := newPubGroup(t, env)
				p, l, _ := g.leadOn(env.Connect("a"))
				state := spread(p.NextVersion(), 1, 2, partitions(4))
				g.publish(p, state)
				l.lose = func(send func() error) error {
					if landed {
						require.NoError(t, send())
					}
					return types.ErrOutcomeUnknown
				}
				second := touch(state, p.NextVersion(), 0)
				_, err := p.Publish(t.Context(), input(second))
				require.ErrorIs(t, err, types.ErrOutcomeUnknown)
				require.Len(t, p.LiveRefs(), 2, "what may be referred to is protected: %v", p.LiveRefs())

				l.lose = nil
				third := touch(state, p.NextVersion(), 1)
				require.Equal(t, second.Version+1, third.Version)
				_, err = p.Publish(t.Context(), input(third))
				if !landed {
					require.NoError(t, err)
					require.Empty(t, p.LiveRefs())
					return
				}
				require.ErrorIs(t, err, types.ErrCommitConflict)
				require.Len(t, p.LiveRefs(), 2)
				got, err := p.Bootstrap(t.Context())
				require.NoError(t, err)
				requireState(t, second, got)
				require.Empty(t, p.LiveRefs())
			})
		})
	}
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, _, _ := g.leadOn(c, func(c *PublisherConfig) { c.RequestTimeout = 300 * time.Millisecond })
		state := spread(p.NextVersion(), 1, 2, partitions(4))
		g.publish(p, state)
		c.Gate().Hold(natstest.FromServer)
		begun := time.Now()
		_, err := p.Publish(t.Context(), input(touch(state, p.NextVersion(), 0)))
		require.Error(t, err)
		require.False(t, errors.Is(err, ErrPayloadHashCollisionOrCorruption))
		require.Less(t, time.Since(begun), 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Bootstrap(ctx)
		require.ErrorIs(t, err, types.ErrPartialListing)
		c.Gate().Heal()

		_, err = p.Bootstrap(t.Context())
		require.NoError(t, err)
		g.publish(p, touch(state, p.NextVersion(), 0))
	})
}
