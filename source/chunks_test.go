package source

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// noisy partitions hardly compress: 4,000 of them need two chunks.
func noisy(seed uint64, n int) []types.Partition {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	r := rand.New(rand.NewPCG(seed, 0))
	ps := make([]types.Partition, n)
	for i := range ps {
		key := make([]byte, 250)
		for j := range key {
			key[j] = letters[r.IntN(len(letters))]
		}
		ps[i] = types.NewPartition(string(key))
	}
	return ps
}

func chunkKeys(t testing.TB, c *natstest.Client) map[string]kv.Entry {
	t.Helper()
	store, err := kv.OpenStore(t.Context(), c.JS(), "config", 0)
	require.NoError(t, err)
	all, err := store.ListKeys(t.Context(), "partitions.chunk.*")
	require.NoError(t, err)
	return all
}

func TestKVLargeList(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c, s := newKV(t, env)
	ctx := t.Context()
	large := noisy(1, 4_000)
	require.NoError(t, s.Set(ctx, large...))
	one := chunkKeys(t, c)
	require.Greater(t, len(one), 1)
	late := NewKV(c.JS(), "config", "partitions")
	early, err := late.readRoot(ctx)
	require.NoError(t, err)
	got, err := late.ListPartitions(ctx)
	require.NoError(t, err)
	require.Len(t, got, len(large))

	// The chunks of the list before stay for who is reading it; those of the one before that go.
	require.NoError(t, s.Add(ctx, part(1)))
	two := chunkKeys(t, c)
	for key := range one {
		require.Contains(t, two, key)
	}
	reader := NewKV(c.JS(), "config", "partitions")
	st, err := reader.decode(ctx, early)
	require.NoError(t, err)
	require.Len(t, st.list.Partitions, len(large))
	require.NoError(t, s.Set(ctx, noisy(2, 4_000)...))
	three := chunkKeys(t, c)
	for key := range one {
		if two[key].Revision == three[key].Revision {
			require.NotContains(t, three, key)
		}
	}
	require.Less(t, len(three), len(one)+len(two))
	requireSorted(t, s, noisy(2, 4_000))

	// A writer that died left chunks that nobody names.
	bucket, err := c.JS().KeyValue(ctx, "config")
	require.NoError(t, err)
	_, err = bucket.Put(ctx, "partitions.chunk.dead", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Set(ctx, part(1)))
	require.NoError(t, s.Set(ctx, part(1), part(2)))
	require.NoError(t, s.Set(ctx, part(1), part(2), part(3)))
	require.Empty(t, chunkKeys(t, c), "no values, and no markers")
	requireList(t, s, part(1), part(2), part(3))
}

func requireSorted(t testing.TB, s *KVSource, want []types.Partition) {
	t.Helper()
	got, err := s.ListPartitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, sorted(want), got)
}

func TestKVDamagedChunks(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c, s := newKV(t, env)
	require.NoError(t, s.Set(t.Context(), noisy(1, 4_000)...))
	bucket, err := c.JS().KeyValue(t.Context(), "config")
	require.NoError(t, err)
	for key := range chunkKeys(t, c) {
		good, err := bucket.Get(t.Context(), key)
		require.NoError(t, err)
		for _, harm := range []func() error{
			func() error { _, err := bucket.Put(t.Context(), key, []byte("x")); return err },
			func() error { return bucket.Delete(t.Context(), key) },
			func() error { return bucket.Purge(t.Context(), key) },
		} {
			require.NoError(t, harm())
			got, err := NewKV(c.JS(), "config", "partitions").ListPartitions(t.Context())
			require.ErrorIs(t, err, types.ErrMalformed)
			require.Nil(t, got)
		}
		_, err = bucket.Put(t.Context(), key, good.Value())
		require.NoError(t, err)
	}
	requireSorted(t, NewKV(c.JS(), "config", "partitions"), noisy(1, 4_000))
}

// Readers always see a whole list while large ones are replaced.
func TestKVReadersAndWritersOfLargeLists(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c, s := newKV(t, env)
	require.NoError(t, s.Set(t.Context(), noisy(0, 3_000)...))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		r := NewKV(c.JS(), "config", "partitions")
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := r.ListPartitions(within(t, 5*time.Minute))
				if err != nil || len(got)%3_000 != 0 || len(got) == 0 {
					t.Errorf("%d partitions, %v", len(got), err)
					return
				}
			}
		})
	}
	for w := range uint64(2) {
		mine := NewKV(c.JS(), "config", "partitions")
		writers.Go(func() {
			for i := range uint64(2) {
				if err := mine.Set(within(t, 5*time.Minute), noisy(1+10*i+w, 3_000)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	require.NoError(t, s.Set(t.Context(), part(1)))
	require.NoError(t, s.Set(t.Context(), part(2)))
	require.NoError(t, s.Set(t.Context(), part(3)))
	require.Empty(t, chunkKeys(t, c))
}
