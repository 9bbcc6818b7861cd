package record_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// stored returns the reference of a payload that lies in a bucket.
func stored(t testing.TB) (types.AssignmentPayloadRef, *bucket) {
	t.Helper()
	raw, err := record.EncodePayload(entries())
	require.NoError(t, err)
	b := &bucket{values: map[string][]byte{}}
	r := ref("worker-1", 1)
	r.PayloadHash, r.SetDigest = b.store(t, raw), record.SetDigest(entries())
	return r, b
}

func TestFetchAndVerify(t *testing.T) {
	r, b := stored(t)
	p, err := record.FetchAndVerifyCommitPayload(context.Background(), b.get, r)
	require.NoError(t, err)
	require.Equal(t, entries(), p.Entries)
	require.Empty(t, record.Stage(err))
	require.Empty(t, record.Stage(errors.New("other")))
}

func TestEachStageHasItsSentinel(t *testing.T) {
	pack := func(raw []byte) []byte {
		root, _, err := record.Pack(raw)
		require.NoError(t, err)
		return root.Value
	}
	unreadable := []byte(`{"schema":1,"entries":[{}]}`)
	newer := []byte(`{"schema":2}`)
	for stage, c := range map[string]struct {
		sentinel, also error
		spoil          func(r *types.AssignmentPayloadRef, b *bucket)
	}{
		"fetch": {record.ErrCommitPayloadFetch, kv.ErrNotFound, func(r *types.AssignmentPayloadRef, b *bucket) {
			delete(b.values, record.PayloadKey(r.PayloadHash))
		}},
		"fetch ": {record.ErrCommitPayloadFetch, nil, func(r *types.AssignmentPayloadRef, b *bucket) { r.PayloadHash = "../x" }},
		"decompress": {record.ErrCommitPayloadDecompress, nil, func(r *types.AssignmentPayloadRef, b *bucket) {
			key := record.PayloadKey(r.PayloadHash)
			b.values[key] = b.values[key][:len(b.values[key])/2]
		}},
		"decompress ": {record.ErrCommitPayloadDecompress, nil, func(r *types.AssignmentPayloadRef, b *bucket) {
			b.values[record.PayloadKey(r.PayloadHash)] = nil
		}},
		"hash": {record.ErrCommitPayloadHashMismatch, nil, func(r *types.AssignmentPayloadRef, b *bucket) {
			b.values[record.PayloadKey(r.PayloadHash)] = pack([]byte("other"))
		}},
		"decode": {record.ErrCommitPayloadDecode, types.ErrMalformed, func(r *types.AssignmentPayloadRef, b *bucket) {
			r.PayloadHash = record.Hash(unreadable)
			b.values[record.PayloadKey(r.PayloadHash)] = pack(unreadable)
		}},
		"decode ": {record.ErrCommitPayloadDecode, types.ErrUnsupportedSchema, func(r *types.AssignmentPayloadRef, b *bucket) {
			r.PayloadHash = record.Hash(newer)
			b.values[record.PayloadKey(r.PayloadHash)] = pack(newer)
		}},
		"digest": {record.ErrCommitPayloadDigestMismatch, nil, func(r *types.AssignmentPayloadRef, b *bucket) { r.SetDigest = record.SetDigest(nil) }},
	} {
		r, b := stored(t)
		c.spoil(&r, b)
		p, err := record.FetchAndVerifyCommitPayload(context.Background(), b.get, r)
		require.ErrorIs(t, err, c.sentinel)
		require.Contains(t, stage, record.Stage(err))
		require.NotEmpty(t, record.Stage(err))
		require.ErrorContains(t, err, `"worker-1"`)
		require.Empty(t, p.Entries)
		if c.also != nil {
			require.ErrorIs(t, err, c.also)
		}
		others := 0
		for _, s := range []error{record.ErrCommitPayloadFetch, record.ErrCommitPayloadDecompress, record.ErrCommitPayloadHashMismatch,
			record.ErrCommitPayloadDecode, record.ErrCommitPayloadDigestMismatch} {
			if errors.Is(err, s) {
				others++
			}
		}
		require.Equal(t, 1, others)
	}
}

func TestFetchParked(t *testing.T) {
	ctx := context.Background()
	c, b := commit(t, refs(1), parked())
	got, err := record.FetchParked(ctx, b.get, &c)
	require.NoError(t, err)
	require.Equal(t, parked(), got)

	none, nothing := commit(t, refs(1), nil)
	got, err = record.FetchParked(ctx, nothing.get, &none)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, nothing.reads)

	c.Parked = b.store(t, []byte(`{"schema":1,"entries":[{}]}`))
	_, err = record.FetchParked(ctx, b.get, &c)
	require.ErrorIs(t, err, record.ErrCommitPayloadDecode)
	c.Parked = record.Hash(nil)
	_, err = record.FetchParked(ctx, b.get, &c)
	require.ErrorIs(t, err, record.ErrCommitPayloadFetch)
}

func TestLargeBlobsLieInChunks(t *testing.T) {
	ctx := context.Background()
	raw := make([]byte, 2<<20)
	rnd := rand.NewChaCha8([32]byte{})
	_, _ = rnd.Read(raw)
	root, chunks, err := record.Pack(raw)
	require.NoError(t, err)
	require.Len(t, chunks, 5)
	require.Equal(t, record.PayloadKey(record.Hash(raw)), root.Key)
	var keys []string
	for i, s := range chunks {
		require.LessOrEqual(t, len(s.Value), 512<<10)
		require.True(t, i == 0 || chunks[i-1].Key < s.Key)
		keys = append(keys, s.Key)
	}
	named, err := record.ChunkKeys(root.Value)
	require.NoError(t, err)
	require.ElementsMatch(t, keys, named)

	b := &bucket{values: map[string][]byte{}}
	hash := b.store(t, raw)
	got, err := record.FetchBlob(ctx, b.get, hash)
	require.NoError(t, err)
	require.True(t, bytes.Equal(raw, got))

	damaged := slices.Clone(b.values[keys[2]])
	damaged[100]++
	b.values[keys[2]] = damaged
	_, err = record.FetchBlob(ctx, b.get, hash)
	require.ErrorIs(t, err, record.ErrCommitPayloadHashMismatch)
	delete(b.values, keys[2])
	_, err = record.FetchBlob(ctx, b.get, hash)
	require.ErrorIs(t, err, record.ErrCommitPayloadFetch)
	require.ErrorIs(t, err, kv.ErrNotFound)

	small, chunks, err := record.Pack([]byte("small"))
	require.NoError(t, err)
	require.Empty(t, chunks)
	named, err = record.ChunkKeys(small.Value)
	require.NoError(t, err)
	require.Empty(t, named)
	_, err = record.ChunkKeys([]byte("{"))
	require.ErrorIs(t, err, record.ErrCommitPayloadDecompress)
}

func TestPackRefusesWhatNobodyWouldUnpack(t *testing.T) {
	_, _, err := record.Pack(make([]byte, record.MaxBlobSize+1))
	require.ErrorIs(t, err, types.ErrPayloadTooLarge)
}
