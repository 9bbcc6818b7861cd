package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestFewWorkersAreInline(t *testing.T) {
	for n, inline := range map[int]bool{0: true, 1: true, 32: true, 33: false} {
		index, err := record.BuildIndex(refs(n))
		require.NoError(t, err)
		require.Equal(t, inline, len(index.Shards) == 0, n)
	}
	index, err := record.BuildIndex(longRefs(32))
	require.NoError(t, err)
	require.NotEmpty(t, index.Shards, "32 with long IDs take more than 6 KiB")
	require.Nil(t, index.Refs)
}

func TestIndexIsSortedAndComplete(t *testing.T) {
	for _, n := range []int{33, 64, 65, 1_000} {
		want := refs(n)
		given := slices.Clone(want)
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { given[i], given[j] = given[j], given[i] })
		c, b := commit(t, given, nil)
		got, err := record.FetchIndex(context.Background(), b.get, &c)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Len(t, b.reads, len(c.Shards), "each shard is read once")
	}
}

func TestBuildIndexRefuses(t *testing.T) {
	twice := append(refs(3), refs(1)...)
	_, err := record.BuildIndex(twice)
	require.ErrorIs(t, err, types.ErrMalformed)
	bad := refs(3)
	bad[0].WorkerID = "a.b"
	_, err = record.BuildIndex(bad)
	require.ErrorIs(t, err, types.ErrMalformed)
	bad = refs(40)
	bad[0].Incarnation = "\xff"
	_, err = record.BuildIndex(bad)
	require.ErrorIs(t, err, types.ErrMalformed)
}

// Bytes per commit stay linear: one worker more or less changes few shards.
func TestOneWorkerChangesFewShards(t *testing.T) {
	all := refs(1_000)
	full, err := record.BuildIndex(all)
	require.NoError(t, err)
	have := map[string]bool{}
	for _, s := range full.Shards {
		have[s.Hash] = true
	}
	const step = 20
	total, most := 0, 0
	for gone := 0; gone < len(all); gone += step {
		index, err := record.BuildIndex(slices.Delete(slices.Clone(all), gone, gone+1))
		require.NoError(t, err)
		changed := 0
		for _, s := range index.Shards {
			if !have[s.Hash] {
				changed++
			}
		}
		total += changed
		most = max(most, changed)
	}
	average := float64(total) / float64(len(all)/step)
	t.Logf("%d shards; one worker less changes %.2f on average, at most %d", len(full.Shards), average, most)
	require.Less(t, average, 3.0)
}

func TestFindRef(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{0, 1, 32, 33, 100, 1_000} {
		c, b := commit(t, refs(n), nil)
		for i := 0; i < n; i += 1 + n/50 {
			id := fmt.Sprintf("worker-%04d", i)
			b.reads = nil
			got, found, err := record.FindRef(ctx, b.get, &c, id)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, ref(id, i), got)
			require.LessOrEqual(t, len(b.reads), 1)
		}
		for _, id := range []string{"", "a", "worker-0000x", "worker-0031x", "worker-0500x", "x"} {
			b.reads = nil
			_, found, err := record.FindRef(ctx, b.get, &c, id)
			require.NoError(t, err)
			require.False(t, found, id)
			require.LessOrEqual(t, len(b.reads), 1)
		}
	}
}

func TestShardMustBeInItsPlace(t *testing.T) {
	ctx := context.Background()
	c, b := commit(t, refs(100), nil)
	moved := c
	moved.Shards = slices.Clone(c.Shards)
	moved.Shards[1].Hash = c.Shards[0].Hash
	_, _, err := record.FindRef(ctx, b.get, &moved, c.Shards[1].First)
	require.ErrorIs(t, err, record.ErrCommitPayloadDecode)
	require.ErrorIs(t, err, types.ErrMalformed)
	_, err = record.FetchIndex(ctx, b.get, &moved)
	require.ErrorIs(t, err, record.ErrCommitPayloadDecode)

	overlaps := c
	overlaps.Shards = slices.Clone(c.Shards)
	overlaps.Shards[1].First = c.Shards[0].First + "x"
	_, _, err = record.FindRef(ctx, b.get, &overlaps, c.Shards[0].First)
	require.ErrorIs(t, err, types.ErrMalformed)
}

func TestFetchIndexVerifiesTheWhole(t *testing.T) {
	ctx := context.Background()
	c, b := commit(t, refs(100), parked())
	other := c
	other.Parked = ""
	_, err := record.FetchIndex(ctx, b.get, &other)
	require.ErrorIs(t, err, record.ErrCommitPayloadDigestMismatch)
	require.Equal(t, "digest", record.Stage(err))

	dropped := c
	dropped.Shards = c.Shards[1:]
	_, err = record.FetchIndex(ctx, b.get, &dropped)
	require.ErrorIs(t, err, record.ErrCommitPayloadDigestMismatch)

	delete(b.values, record.PayloadKey(c.Shards[2].Hash))
	_, err = record.FetchIndex(ctx, b.get, &c)
	require.ErrorIs(t, err, record.ErrCommitPayloadFetch)
	require.ErrorContains(t, err, "shard 2")
	_, _, err = record.FindRef(ctx, b.get, &c, c.Shards[2].First)
	require.ErrorIs(t, err, record.ErrCommitPayloadFetch)
}

func TestShardHoldsAtMost32(t *testing.T) {
	index, err := record.BuildIndex(refs(33))
	require.NoError(t, err)
	var body []string
	for _, raw := range index.Blobs {
		text := string(raw)
		body = append(body, text[strings.Index(text, "[")+1:strings.LastIndex(text, "]")])
	}
	_, err = record.DecodeShard([]byte(`{"schema":1,"refs":[` + strings.Join(body, ",") + `]}`))
	require.ErrorContains(t, err, "more than 32")
}
