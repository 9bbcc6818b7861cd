package kv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/stretchr/testify/require"
)

func TestBatchIsAllOrNothing(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	ctx := t.Context()
	one, err := s.Put(ctx, "a.one", []byte("1"), 0, 0)
	require.NoError(t, err)

	_, err = s.Batch(ctx, []kv.Write{{Key: "a.two", Value: []byte("2")}, {Key: "a.one", Value: []byte("x"), Expect: one + 1}})
	require.True(t, kv.IsConflict(err), err)
	_, err = s.Batch(ctx, []kv.Write{{Key: "a.one", Value: []byte("x")}, {Key: "a.two", Value: []byte("2")}})
	require.True(t, kv.IsConflict(err), err)
	_, err = s.Get(ctx, "a.two")
	require.ErrorIs(t, err, kv.ErrNotFound)

	revs, err := s.Batch(ctx, []kv.Write{
		{Key: "a.one", Value: []byte("1b"), Expect: one},
		{Key: "a.two", Value: []byte("2")},
		{Key: "a.three", Value: []byte("3"), Any: true},
	})
	require.NoError(t, err)
	requireRevisions(t, s, revs, "a.one", "a.two", "a.three")

	revs, err = s.Batch(ctx, []kv.Write{{Key: "a.one", Delete: true, Expect: revs[0]}, {Key: "a.three", Value: []byte("3b"), Any: true}})
	require.NoError(t, err)
	requireRevisions(t, s, revs, "a.one", "a.three")
	e, err := s.Get(ctx, "a.one")
	require.NoError(t, err)
	require.Equal(t, kv.Delete, e.Op)
}

func requireRevisions(t *testing.T, s *kv.Store, revs []uint64, keys ...string) {
	t.Helper()
	require.Len(t, revs, len(keys))
	for i, key := range keys {
		e, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, revs[i], e.Revision, key)
	}
}

func TestBatchRefreshesTTL(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		revs, err := b.Control.Batch(t.Context(), []kv.Write{{Key: "a.ttl", TTL: 10 * time.Second}, {Key: "a.ever"}})
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		revs, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.ttl", TTL: 10 * time.Second, Expect: revs[0]}})
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		requireRevisions(t, b.Control, revs, "a.ttl")
		time.Sleep(3 * time.Second)
		e, err := b.Control.Get(t.Context(), "a.ttl")
		require.NoError(t, err)
		require.Equal(t, kv.Expire, e.Op)
	})
}

func TestBatchLimits(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	writes := make([]kv.Write, kv.MaxBatch+1)
	for i := range writes {
		writes[i] = kv.Write{Key: fmt.Sprintf("a.%d", i), Value: []byte("x")}
	}
	_, err := s.Batch(t.Context(), writes)
	require.ErrorContains(t, err, "1001 writes in a batch, 1 to 1000 fit")
	_, err = s.Batch(t.Context(), nil)
	require.ErrorContains(t, err, "0 writes")
	_, err = s.Batch(t.Context(), []kv.Write{{Key: "a.b"}, {Key: "a.b"}})
	require.ErrorContains(t, err, `writes "a.b" twice`)
	require.Zero(t, stored(t, c, s))

	revs, err := s.Batch(t.Context(), writes[:kv.MaxBatch])
	require.NoError(t, err)
	require.Equal(t, uint64(kv.MaxBatch), stored(t, c, s))
	requireRevisions(t, s, []uint64{revs[0], revs[kv.MaxBatch-1]}, "a.0", "a.999")
}

// Refused batches must not use up the number that a stream takes at once (50).
func TestRefusedBatchesLeaveNothingBehind(t *testing.T) {
	env := single(t)
	s := ensure(t, env.Connect("a"), memory()).Control
	for range 200 {
		_, err := s.Batch(t.Context(), []kv.Write{{Key: "a.b", Expect: 7}, {Key: "a.c"}})
		require.True(t, kv.IsConflict(err), err)
	}
	_, err := s.Batch(t.Context(), []kv.Write{{Key: "a.b"}, {Key: "a.c"}})
	require.NoError(t, err)
}
