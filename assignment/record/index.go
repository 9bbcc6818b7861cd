package record

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

const (
	// MaxShardRefs is the most references in a shard, and inline in a commit.
	MaxShardRefs = 32
	// minShardRefs is the least in all shards but the last, so that even 1,000 workers with the longest IDs take at most 48
	// shards and leave the commit under 8 KiB.
	minShardRefs = 21
	// maxInline bounds the references inline in a commit, in bytes.
	maxInline = 6 << 10
)

// Index is where the worker references of a commit go: inline, or into shards.
type Index struct {
	// Refs go into the commit as they are; nil where there are Shards.
	Refs []types.AssignmentPayloadRef
	// Shards go into the commit in place of Refs.
	Shards []types.ShardRef
	// Blobs are the uncompressed shards, in the order of Shards, to be stored before the commit.
	Blobs [][]byte
}

// BuildIndex sorts the references by worker and cuts them into shards, unless they are few enough to be inline. Where a shard
// ends depends on the IDs around that place only, so a worker that joins or leaves usually changes one shard.
func BuildIndex(refs []types.AssignmentPayloadRef) (Index, error) {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b types.AssignmentPayloadRef) int { return strings.Compare(a.WorkerID, b.WorkerID) })
	if err := checkRefs(refs); err != nil {
		return Index{}, malformed("index", "%w", err)
	}
	if len(refs) <= MaxShardRefs {
		raw, err := encodeShard(refs)
		if err != nil {
			return Index{}, err
		}
		if len(raw) <= maxInline {
			return Index{Refs: refs}, nil
		}
	}
	var ix Index
	for len(refs) > 0 {
		n := shardLen(refs)
		raw, err := encodeShard(refs[:n])
		if err != nil {
			return Index{}, err
		}
		ix.Shards = append(ix.Shards, types.ShardRef{First: refs[0].WorkerID, Hash: Hash(raw)})
		ix.Blobs = append(ix.Blobs, raw)
		refs = refs[n:]
	}
	return ix, nil
}

// shardLen returns how many of the references go into the next shard: it ends before the ID with the smallest hash
// among those at which it may end. Most changes before that place shift the choices but not the choice.
func shardLen(refs []types.AssignmentPayloadRef) int {
	if len(refs) <= MaxShardRefs {
		return len(refs)
	}
	best, least := 0, uint64(0)
	for i := minShardRefs; i <= MaxShardRefs; i++ {
		h := fnv.New64a()
		h.Write([]byte(refs[i].WorkerID))
		if sum := mix(h.Sum64()); best == 0 || sum < least {
			best, least = i, sum
		}
	}
	return best
}

// mix spreads the low bits of an FNV sum, in which similar IDs differ, over all bits (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func encodeShard(refs []types.AssignmentPayloadRef) ([]byte, error) {
	w := writer{buf: make([]byte, 0, 64+256*len(refs))}
	w.raw(`{"schema":`)
	w.int(types.CommitSchema)
	w.raw(`,"refs":[`)
	for i := range refs {
		r := &refs[i]
		w.item(i)
		w.raw(`{"w":`)
		w.text(r.WorkerID)
		w.raw(`,"i":`)
		w.text(r.Incarnation)
		w.raw(`,"p":`)
		w.text(r.PayloadHash)
		w.raw(`,"d":`)
		w.text(r.SetDigest)
		if r.GraceUntil != 0 {
			w.raw(`,"g":`)
			w.int(r.GraceUntil)
		}
		w.raw("}")
	}
	w.raw("]}")
	return w.bytes("shard")
}

// DecodeShard decodes the bytes of a shard. Errors wrap types.ErrMalformed or types.ErrUnsupportedSchema.
func DecodeShard(raw []byte) (types.AssignmentShard, error) {
	const what = "shard"
	s := types.AssignmentShard{Schema: types.CommitSchema}
	err := readObject(what, raw, map[string]func(*json.Decoder) error{
		"refs": func(dec *json.Decoder) error {
			return readList(dec, func(dec *json.Decoder) error {
				if len(s.Refs) == MaxShardRefs {
					return fmt.Errorf("more than %d references", MaxShardRefs)
				}
				var r types.AssignmentPayloadRef
				if err := dec.Decode(&r); err != nil {
					return err
				}
				s.Refs = append(s.Refs, r)
				return checkRefs(s.Refs[max(0, len(s.Refs)-2):])
			})
		},
	})
	if err == nil && len(s.Refs) == 0 {
		err = malformed(what, "no references")
	}
	if err != nil {
		return types.AssignmentShard{}, err
	}
	return s, nil
}

// searchRefs returns the reference of the worker among sorted ones.
func searchRefs(refs []types.AssignmentPayloadRef, workerID string) (types.AssignmentPayloadRef, bool) {
	i, found := slices.BinarySearchFunc(refs, workerID, func(r types.AssignmentPayloadRef, id string) int {
		return strings.Compare(r.WorkerID, id)
	})
	if !found {
		return types.AssignmentPayloadRef{}, false
	}
	return refs[i], true
}

// findShard returns which of the commit's shards has the worker, if any has; -1 if none can.
func findShard(c *types.AssignmentCommit, workerID string) int {
	i, found := slices.BinarySearchFunc(c.Shards, workerID, func(s types.ShardRef, id string) int {
		return strings.Compare(s.First, id)
	})
	if found {
		return i
	}
	return i - 1
}

// fetchShard reads the i-th shard of the commit and checks that it is what the commit says. Errors as in [FetchIndex].
func fetchShard(ctx context.Context, get Getter, c *types.AssignmentCommit, i int) (types.AssignmentShard, error) {
	raw, err := FetchBlob(ctx, get, c.Shards[i].Hash)
	if err != nil {
		return types.AssignmentShard{}, fmt.Errorf("shard %d of commit %d: %w", i, c.Version, err)
	}
	s, err := DecodeShard(raw)
	if err == nil {
		first, last := s.Refs[0].WorkerID, s.Refs[len(s.Refs)-1].WorkerID
		if first != c.Shards[i].First || i+1 < len(c.Shards) && last >= c.Shards[i+1].First {
			err = malformed("shard", "it goes from %q to %q, which is not its place", first, last)
		}
	}
	if err != nil {
		return types.AssignmentShard{}, fmt.Errorf("%w: shard %d of commit %d: %w", ErrCommitPayloadDecode, i, c.Version, err)
	}
	return s, nil
}

// FindRef returns the reference of the worker; found is false where the commit does not list it. It reads one shard at most.
// Errors as in [FetchIndex].
func FindRef(ctx context.Context, get Getter, c *types.AssignmentCommit, workerID string) (ref types.AssignmentPayloadRef, found bool, err error) {
	if len(c.Shards) == 0 {
		ref, found = searchRefs(c.Refs, workerID)
		return ref, found, nil
	}
	i := findShard(c, workerID)
	if i < 0 {
		return ref, false, nil
	}
	s, err := fetchShard(ctx, get, c, i)
	if err != nil {
		return ref, false, err
	}
	ref, found = searchRefs(s.Refs, workerID)
	return ref, found, nil
}

// FetchIndex returns all references of the commit, sorted by worker. Their number and batch digest are those of the commit.
// Errors wrap the sentinel of the stage.
func FetchIndex(ctx context.Context, get Getter, c *types.AssignmentCommit) ([]types.AssignmentPayloadRef, error) {
	refs := slices.Clone(c.Refs)
	for i := range c.Shards {
		s, err := fetchShard(ctx, get, c, i)
		if err != nil {
			return nil, err
		}
		refs = append(refs, s.Refs...)
	}
	if got := BatchDigest(refs, c.Parked); got != c.BatchDigest || len(refs) != c.WorkerCount {
		return nil, fmt.Errorf("%w: the index of commit %d has %d workers and batch digest %s, expected %d and %s",
			ErrCommitPayloadDigestMismatch, c.Version, len(refs), got, c.WorkerCount, c.BatchDigest)
	}
	return refs, nil
}
