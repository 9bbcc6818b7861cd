package record

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/partigo/parti/types"
)

// EncodeCommit returns the commit as JSON; the copy in the log has the same bytes. What [DecodeCommit] would refuse is refused
// here.
func EncodeCommit(c *types.AssignmentCommit) ([]byte, error) {
	if err := checkCommit(c); err != nil {
		return nil, err
	}
	utc := *c
	utc.PublishedAt = c.PublishedAt.UTC()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&utc); err != nil {
		return nil, malformed("commit", "%w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeCommit decodes a commit or its copy in the log, and checks everything that can be checked without its blobs; where the
// references are inline, that includes the batch digest. Errors wrap types.ErrMalformed or types.ErrUnsupportedSchema.
func DecodeCommit(data []byte) (types.AssignmentCommit, error) {
	var c types.AssignmentCommit
	err := classify("commit", data, json.Unmarshal(data, &c))
	if err == nil {
		err = checkCommit(&c)
	}
	if err != nil {
		return types.AssignmentCommit{}, err
	}
	return c, nil
}

func checkCommit(c *types.AssignmentCommit) error {
	const what = "commit"
	if err := checkSchema(what, c.Schema); err != nil {
		return err
	}
	switch {
	case !types.ValidVersion(c.Version):
		return malformed(what, "version %d: versions lie between 0 and %d", c.Version, types.VersionLimit())
	case types.ValidateWorkerID(c.TermHolder.Worker) != nil:
		return malformed(what, "term holder %q", c.TermHolder)
	case c.Nonce == "":
		return malformed(what, "no nonce")
	case !isDigest(c.BatchDigest):
		return malformed(what, "batch digest %q", c.BatchDigest)
	case c.Parked != "" && !isHash(c.Parked):
		return malformed(what, "parked list %q", c.Parked)
	case c.PartitionCount < 0:
		return malformed(what, "%d partitions", c.PartitionCount)
	}
	if len(c.Shards) > 0 {
		return checkShards(c)
	}
	if len(c.Refs) != c.WorkerCount {
		return malformed(what, "%d references of %d workers", len(c.Refs), c.WorkerCount)
	}
	if err := checkRefs(c.Refs); err != nil {
		return malformed(what, "%w", err)
	}
	if got := BatchDigest(c.Refs, c.Parked); got != c.BatchDigest {
		return malformed(what, "the references have batch digest %s, expected %s", got, c.BatchDigest)
	}
	return nil
}

func checkShards(c *types.AssignmentCommit) error {
	const what = "commit"
	if n := len(c.Shards); len(c.Refs) > 0 || c.WorkerCount < n || c.WorkerCount > n*MaxShardRefs {
		return malformed(what, "%d workers in %d shards, and %d inline", c.WorkerCount, n, len(c.Refs))
	}
	for i, s := range c.Shards {
		switch {
		case types.ValidateWorkerID(s.First) != nil || !isHash(s.Hash):
			return malformed(what, "shard %d is %q at %q", i, s.First, s.Hash)
		case i > 0 && c.Shards[i-1].First >= s.First:
			return malformed(what, "shard %q follows %q", s.First, c.Shards[i-1].First)
		}
	}
	return nil
}

// checkRefs checks that references are complete and sorted by worker, none twice. A worker that does not speak the commit
// protocol has no incarnation.
func checkRefs(refs []types.AssignmentPayloadRef) error {
	for i := range refs {
		r := &refs[i]
		if err := types.ValidateWorkerID(r.WorkerID); err != nil {
			return fmt.Errorf("reference %d: %w", i, err)
		}
		switch {
		case !isHash(r.PayloadHash) || !isDigest(r.SetDigest) || r.GraceUntil < 0:
			return fmt.Errorf("reference of %q: payload %q, set digest %q, grace until %d", r.WorkerID, r.PayloadHash, r.SetDigest, r.GraceUntil)
		case i > 0 && refs[i-1].WorkerID >= r.WorkerID:
			return fmt.Errorf("reference of %q follows that of %q", r.WorkerID, refs[i-1].WorkerID)
		}
	}
	return nil
}
