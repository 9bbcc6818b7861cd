package record_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func life(n int) string { return fmt.Sprintf("6ba7b810-9dad-41d1-80b4-%012d", n) }

func holder(n int) types.Holder {
	return types.Holder{Worker: fmt.Sprintf("worker-%d", n), Incarnation: life(n)}
}

func ref(worker string, n int) types.AssignmentPayloadRef {
	return types.AssignmentPayloadRef{
		WorkerID: worker, Incarnation: life(n),
		PayloadHash: record.Hash(fmt.Append(nil, n)), SetDigest: record.Hash(fmt.Append(nil, "d", n))[:32],
	}
}

func refs(n int) []types.AssignmentPayloadRef {
	var out []types.AssignmentPayloadRef
	for i := range n {
		out = append(out, ref(fmt.Sprintf("worker-%04d", i), i))
	}
	return out
}

func entries() []types.AssignmentEntry {
	shared := []types.From{{Holder: holder(1), Version: 1_760_000_000_001}, {Holder: holder(2), Version: 1_760_000_000_002}}
	return []types.AssignmentEntry{
		{Partition: types.NewPartition("eu", "orders", "17"), Epoch: 1_760_000_000_003, From: shared},
		{Partition: types.Partition{Keys: []string{"eu", "orders", "18"}, Weight: 250, Label: "gpu"}, Epoch: 1_760_000_000_003,
			From: []types.From{{Holder: types.Holder{Worker: "agent"}, Version: 1_760_000_000_003}}},
		{Partition: types.NewPartition("eu", "orders", "19"), Epoch: 1_760_000_000_001},
		{Partition: types.NewPartition("zürich", "<a>&\"b\"\\\u2028"), Epoch: 1_760_000_000_003, From: append([]types.From(nil), shared...)},
	}
}

func parked() []types.ParkedEntry {
	return []types.ParkedEntry{
		{AssignmentEntry: types.AssignmentEntry{Partition: types.Partition{Keys: []string{"a"}, Label: "gpu"}}, Reason: `no worker carries label gpu`},
		{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition("b"), From: []types.From{{Holder: holder(1), Version: 7}}}, Retired: true},
	}
}

// commit returns a commit of the references, and a getter for what it refers to.
func commit(t testing.TB, refs []types.AssignmentPayloadRef, parked []types.ParkedEntry) (types.AssignmentCommit, *bucket) {
	t.Helper()
	b := &bucket{values: map[string][]byte{}}
	c := types.AssignmentCommit{
		Schema: types.CommitSchema, Version: 1_760_000_000_003, LeaderRevision: 42, TermHolder: holder(1), WorkerCount: len(refs),
		PartitionCount: 5, Lifecycle: types.LifecycleScale, SourceRevision: 9, SourceRevisionKnown: true, PreviousRevision: 41,
		PublishedAt: time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.FixedZone("", 3600)), Nonce: life(99),
	}
	if len(parked) > 0 {
		raw, err := record.EncodeParked(parked)
		require.NoError(t, err)
		c.Parked = b.store(t, raw)
	}
	index, err := record.BuildIndex(refs)
	require.NoError(t, err)
	require.Len(t, index.Blobs, len(index.Shards))
	for i, raw := range index.Blobs {
		require.Equal(t, index.Shards[i].Hash, b.store(t, raw))
	}
	c.Refs, c.Shards, c.BatchDigest = index.Refs, index.Shards, record.BatchDigest(refs, c.Parked)
	return c, b
}

// bucket is a store in memory that counts its reads.
type bucket struct {
	values map[string][]byte
	reads  []string
}

func (b *bucket) store(t testing.TB, raw []byte) (hash string) {
	t.Helper()
	root, chunks, err := record.Pack(raw)
	require.NoError(t, err)
	for _, s := range append(chunks, root) {
		b.values[s.Key] = s.Value
	}
	return strings.TrimPrefix(root.Key, record.PayloadPrefix)
}

func (b *bucket) get(_ context.Context, key string) ([]byte, error) {
	b.reads = append(b.reads, key)
	if v, ok := b.values[key]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%w: %q", kv.ErrNotFound, key)
}

func TestGoldenCommit(t *testing.T) {
	for name, c := range map[string]types.AssignmentCommit{
		"commit_inline.json":  first(commit(t, refs(2), parked())),
		"commit_sharded.json": first(commit(t, refs(40), nil)),
		"commit_empty.json":   first(commit(t, nil, nil)),
	} {
		raw, err := record.EncodeCommit(&c)
		require.NoError(t, err)
		got, err := record.DecodeCommit(golden.Equal(t, name, raw))
		require.NoError(t, err)
		c.PublishedAt = c.PublishedAt.UTC()
		require.Equal(t, c, got)
	}
}

func first[A, B any](a A, _ B) A { return a }

func TestGoldenShard(t *testing.T) {
	rs := refs(40)
	rs[3].GraceUntil = 1_760_000_060_000
	rs[4].Incarnation = "" // does not speak the commit protocol
	index, err := record.BuildIndex(rs)
	require.NoError(t, err)
	s, err := record.DecodeShard(golden.Equal(t, "shard.json", index.Blobs[0]))
	require.NoError(t, err)
	require.Equal(t, types.AssignmentShard{Schema: 1, Refs: rs[:len(s.Refs)]}, s)
}

func TestGoldenPayload(t *testing.T) {
	raw, err := record.EncodePayload(entries())
	require.NoError(t, err)
	p, err := record.DecodePayload(golden.Equal(t, "payload.json", raw))
	require.NoError(t, err)
	require.Equal(t, types.AssignmentPayload{Schema: 1, Entries: entries()}, p)
	require.Same(t, &p.Entries[0].From[0], &p.Entries[3].From[0], "equal lists share memory")
	require.Equal(t, "ae75ebef2ca19f099c1c356c3895c963", record.SetDigest(p.Entries))

	raw, err = record.EncodePayload(nil)
	require.NoError(t, err)
	golden.Equal(t, "payload_empty.json", raw)
	p, err = record.DecodePayload(raw)
	require.NoError(t, err)
	require.Empty(t, p.Entries)
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb924", record.SetDigest(nil))
}

func TestGoldenParked(t *testing.T) {
	raw, err := record.EncodeParked(parked())
	require.NoError(t, err)
	p, err := record.DecodeParked(golden.Equal(t, "parked.json", raw))
	require.NoError(t, err)
	require.Equal(t, types.ParkedPayload{Schema: 1, Entries: parked()}, p)
}
