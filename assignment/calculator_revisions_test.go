package assignment

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// revisionedSource shows n partitions at a revision.
type revisionedSource struct {
	mu       sync.Mutex
	n        int
	revision uint64
}

func (s *revisionedSource) set(n int, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n, s.revision = n, revision
}

func (s *revisionedSource) Snapshot(context.Context) (types.SourceSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return types.SourceSnapshot{Partitions: somePartitions(s.n), Revision: s.revision}, nil
}

func (s *revisionedSource) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	snap, err := s.Snapshot(ctx)
	return snap.Partitions, err
}

func somePartitions(n int) (ps []types.Partition) {
	for i := range n {
		ps = append(ps, types.NewPartition(fmt.Sprintf("p%04d", i)))
	}
	return ps
}

// What a replica that lags says of the source is not committed, whoever asked for the look, and neither by the next leader.
func TestOlderSourceRevisionIsNotCommitted(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		src := &revisionedSource{n: 12, revision: 10}
		use := func(c *Config) { c.Source = src }
		e.fleet.join(ids(2)...)
		e.start(use)
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		require.EqualValues(t, 10, first.SourceRevision)
		e.fleet.ack(first.Version)

		refresh := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return e.calc.Refresh(ctx)
		}
		src.set(10, 9)
		require.ErrorIs(t, refresh(testTTL/2), context.DeadlineExceeded)
		require.True(t, e.calc.Status().SourceSuspicious)
		require.ErrorIs(t, e.calc.Status().LastError, types.ErrSuspiciousObservation)
		c, _ := e.commit()
		require.Equal(t, first.Version, c.Version)

		e.start(use) // the next leader knows the revision from the commit
		e.quiet(testTTL / 2)
		require.True(t, e.calc.Status().SourceSuspicious)

		src.set(13, 11)
		require.NoError(t, refresh(testTTL/2))
		c, _ = e.commit()
		require.EqualValues(t, 11, c.SourceRevision)
		require.EqualValues(t, 13, c.PartitionCount)
		require.False(t, e.calc.Status().SourceSuspicious)
	})
}

// A source that was restored from a backup, or made anew, shows lower revisions for good: they are believed after a HeartbeatTTL.
func TestSourceThatWentBackForGood(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		src := &revisionedSource{n: 12, revision: 10}
		e.fleet.join(ids(2)...)
		e.start(func(c *Config) { c.Source = src })
		first, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(first.Version)
		for _, revision := range []uint64{3, 2} { // also again
			src.set(10+int(revision), revision)
			began := time.Now()
			require.NoError(t, e.calc.Refresh(t.Context()))
			require.GreaterOrEqual(t, time.Since(began), testTTL)
			c, _ := e.commit()
			require.Equal(t, revision, c.SourceRevision)
			require.EqualValues(t, 10+revision, c.PartitionCount)
			e.fleet.ack(c.Version)
		}
		src.set(14, 4) // below what was given up, and above what there is
		began := time.Now()
		require.NoError(t, e.calc.Refresh(t.Context()))
		require.Less(t, time.Since(began), testTTL)
	})
}

// A commit that turns out to have been made from a newer list takes the place of the older one that was believed meanwhile, unless its
// revision was given up.
func TestNewerRevisionOfACommitIsAdopted(t *testing.T) {
	cfg := Config{HeartbeatTTL: testTTL}
	cfg.setDefaults()
	list := func(n int, revision uint64) sourceList {
		l, err := newSourceList(somePartitions(n))
		require.NoError(t, err)
		l.sourceOrigin = sourceOrigin{revision, true}
		return l
	}
	state := &plan.State{Version: 1}
	for _, p := range somePartitions(5) {
		state.Parked = append(state.Parked, types.ParkedEntry{AssignmentEntry: types.AssignmentEntry{Partition: p}})
	}
	v := newSourceView(&cfg)
	v.adopt(nil, sourceOrigin{})
	require.False(t, v.take(lookup{list: list(4, 9)}, false, false, false, time.Second))
	old := list(3, 9)
	v.deferred = &old
	v.adopt(state, sourceOrigin{10, true})
	require.Len(t, v.list.partitions, 5)
	require.Equal(t, sourceOrigin{10, true}, v.list.sourceOrigin)
	require.Nil(t, v.deferred)
	require.Equal(t, 2, v.generation)
	require.True(t, v.take(lookup{list: list(4, 9)}, true, false, false, time.Second))

	v.seen.since = v.seen.since.Add(-testTTL)
	require.True(t, v.take(lookup{list: list(4, 9)}, true, false, false, time.Second), "only looked at twice")
	require.False(t, v.take(lookup{list: list(4, 9)}, true, false, false, time.Second))
	v.adopt(state, sourceOrigin{10, true})
	require.Len(t, v.list.partitions, 4, "given up")
	v.adopt(state, sourceOrigin{})
	require.Len(t, v.list.partitions, 4)
}
