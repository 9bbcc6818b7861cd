package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/partigo/parti/internal/blob"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// MaxBlobSize bounds an uncompressed blob, in bytes. A million partitions of one worker with long names and histories take
// about half of it.
const MaxBlobSize = 256 << 20

// The stages at which reading what a commit refers to can fail. Nothing was applied; all are worth a retry with backoff, since
// a replica may lag behind the commit. Wrapped with detail; see [Stage].
var (
	// ErrCommitPayloadFetch: the blob, or a chunk of it, could not be read. The reader's error is wrapped too.
	ErrCommitPayloadFetch = errors.New("record: blob cannot be fetched")
	// ErrCommitPayloadDecompress: the stored bytes are no gzip stream and no manifest, are damaged, or are over [MaxBlobSize].
	ErrCommitPayloadDecompress = errors.New("record: blob cannot be decompressed")
	// ErrCommitPayloadHashMismatch: the bytes are not those that the address promises.
	ErrCommitPayloadHashMismatch = errors.New("record: blob has another hash")
	// ErrCommitPayloadDecode: the bytes are the right ones and cannot be understood; types.ErrUnsupportedSchema or
	// types.ErrMalformed is wrapped too.
	ErrCommitPayloadDecode = errors.New("record: blob cannot be decoded")
	// ErrCommitPayloadDigestMismatch: the decoded content is not what the commit, or its reference, was made for.
	ErrCommitPayloadDigestMismatch = errors.New("record: blob has another digest")
)

// Stage names the stage at which err arose, for metrics: fetch, decompress, hash, decode or digest; "" for any other error.
func Stage(err error) string {
	switch {
	case errors.Is(err, ErrCommitPayloadFetch):
		return "fetch"
	case errors.Is(err, ErrCommitPayloadDecompress):
		return "decompress"
	case errors.Is(err, ErrCommitPayloadHashMismatch):
		return "hash"
	case errors.Is(err, ErrCommitPayloadDecode):
		return "decode"
	case errors.Is(err, ErrCommitPayloadDigestMismatch):
		return "digest"
	}
	return ""
}

// Stored is one value as it lies in the control bucket.
type Stored struct {
	Key   string
	Value []byte
}

// Pack returns what is to be stored for a blob. The chunks, if there are any, are stored before the root, which is what makes
// the blob exist. Chunks are sorted by key.
func Pack(raw []byte) (root Stored, chunks []Stored, err error) {
	if len(raw) > MaxBlobSize {
		return Stored{}, nil, fmt.Errorf("%w: a blob of %d bytes, the limit is %d", types.ErrPayloadTooLarge, len(raw), MaxBlobSize)
	}
	value, pieces, err := blob.Pack(raw)
	if err != nil {
		return Stored{}, nil, fmt.Errorf("record: pack: %w", err)
	}
	for hash, piece := range pieces {
		chunks = append(chunks, Stored{Key: ChunkKey(hash), Value: piece})
	}
	slices.SortFunc(chunks, func(a, b Stored) int { return strings.Compare(a.Key, b.Key) })
	return Stored{Key: PayloadKey(Hash(raw)), Value: value}, chunks, nil
}

// ChunkKeys returns the keys of the chunks that the stored value of a blob refers to; none where the value is all.
func ChunkKeys(root []byte) ([]string, error) {
	hashes, err := blob.Chunks(root)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCommitPayloadDecompress, err)
	}
	keys := make([]string, len(hashes))
	for i, h := range hashes {
		keys[i] = ChunkKey(h)
	}
	return keys, nil
}

// Getter reads the value of a key of the control bucket. kv.ErrNotFound means that there is none.
type Getter func(ctx context.Context, key string) ([]byte, error)

// StoreGetter reads from a bucket.
func StoreGetter(s *kv.Store) Getter {
	return func(ctx context.Context, key string) ([]byte, error) {
		e, err := s.Get(ctx, key)
		if err == nil && e.Absent() {
			err = fmt.Errorf("%w: %q was deleted", kv.ErrNotFound, key)
		}
		return e.Value, err
	}
}

// FetchBlob reads the blob of that hash and returns its uncompressed bytes, at most [MaxBlobSize], which have that hash. Errors
// wrap the sentinel of the stage.
func FetchBlob(ctx context.Context, get Getter, hash string) ([]byte, error) {
	if !isHash(hash) {
		return nil, fmt.Errorf("%w: %q is no address", ErrCommitPayloadFetch, hash)
	}
	root, err := get(ctx, PayloadKey(hash))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCommitPayloadFetch, err)
	}
	chunk := func(ctx context.Context, hash string) ([]byte, error) { return get(ctx, ChunkKey(hash)) }
	raw, err := blob.Unpack(ctx, root, hash, chunk, MaxBlobSize)
	switch {
	case err == nil:
		return raw, nil
	case errors.Is(err, blob.ErrFetch):
		return nil, fmt.Errorf("%w: blob %s: %w", ErrCommitPayloadFetch, hash, err)
	case errors.Is(err, blob.ErrHashMismatch):
		return nil, fmt.Errorf("%w: blob %s: %w", ErrCommitPayloadHashMismatch, hash, err)
	}
	return nil, fmt.Errorf("%w: blob %s: %w", ErrCommitPayloadDecompress, hash, err)
}

// FetchAndVerifyCommitPayload returns what the reference gives to its worker, with everything that can be checked checked.
// Errors wrap the sentinel of the stage.
func FetchAndVerifyCommitPayload(ctx context.Context, get Getter, ref types.AssignmentPayloadRef) (types.AssignmentPayload, error) {
	fail := func(err error) (types.AssignmentPayload, error) {
		return types.AssignmentPayload{}, fmt.Errorf("payload of %q: %w", ref.WorkerID, err)
	}
	raw, err := FetchBlob(ctx, get, ref.PayloadHash)
	if err != nil {
		return fail(err)
	}
	p, err := DecodePayload(raw)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrCommitPayloadDecode, err))
	}
	if got := SetDigest(p.Entries); got != ref.SetDigest {
		return fail(fmt.Errorf("%w: it is %s, expected %s", ErrCommitPayloadDigestMismatch, got, ref.SetDigest))
	}
	return p, nil
}

// FetchParked returns the commit's entries without an owner, sorted by partition ID. Errors wrap the sentinel of the stage.
func FetchParked(ctx context.Context, get Getter, c *types.AssignmentCommit) ([]types.ParkedEntry, error) {
	if c.Parked == "" {
		return nil, nil
	}
	raw, err := FetchBlob(ctx, get, c.Parked)
	if err != nil {
		return nil, fmt.Errorf("parked list of commit %d: %w", c.Version, err)
	}
	p, err := DecodeParked(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: parked list of commit %d: %w", ErrCommitPayloadDecode, c.Version, err)
	}
	return p.Entries, nil
}
