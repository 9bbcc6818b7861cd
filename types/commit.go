package types

import "time"

// CommitSchema is the major schema of commits, shards and payloads that this release writes, and the highest it reads. Within
// a schema fields are only added; a reader ignores those it does not know, and no digest covers them.
const CommitSchema = 1

// Reasons for a commit, as they appear in [AssignmentCommit.Lifecycle].
const (
	LifecycleColdStart  = "cold_start"
	LifecycleScale      = "planned_scale"
	LifecycleLeave      = "leave"
	LifecycleEmergency  = "emergency"
	LifecyclePartitions = "partitions"
	LifecycleManual     = "manual"
	LifecycleRecovery   = "recovery"
	LifecycleLabels     = "labels" // nobody has carried a label for the spill grace
)

// AssignmentCommit is the value of the one key that decides who owns what. It is small at any size of the group: what is
// large lies in content-addressed values that it refers to.
type AssignmentCommit struct {
	Schema int `json:"schema"`
	// Version orders commits. It never repeats and never goes back, whatever happens to the store.
	Version int64 `json:"version"`
	// LeaderRevision is the term under which the commit was made: the revision at which the leader acquired its key.
	LeaderRevision uint64 `json:"leader_revision"`
	// TermHolder is the leader that made the commit.
	TermHolder Holder `json:"term_holder"`
	// BatchDigest covers every worker reference and the parked list, see package assignment.
	BatchDigest string `json:"batch_digest"`
	// WorkerCount is the number of worker references.
	WorkerCount int `json:"workers"`
	// PartitionCount is the number of partitions of the source: assigned and parked together.
	PartitionCount int `json:"partitions"`
	// Refs are the worker references, sorted by worker ID, where there are few; otherwise nil, and Shards lists where they lie.
	Refs []AssignmentPayloadRef `json:"refs,omitempty"`
	// Shards lists the shards of the worker references, sorted by First.
	Shards []ShardRef `json:"shards,omitempty"`
	// Parked is the hash of the list of entries without an owner; empty where there are none.
	Parked string `json:"parked,omitempty"`
	// ParkedCount is the number of partitions of the source that nobody owns.
	ParkedCount int `json:"parked_count,omitempty"`
	// Lifecycle is the reason for the commit. Diagnostic only.
	Lifecycle string `json:"lifecycle"`
	// SourceRevision is the revision of the partition list that the commit was made from, where SourceRevisionKnown.
	SourceRevision      uint64 `json:"source_revision,omitempty"`
	SourceRevisionKnown bool   `json:"source_revision_known,omitempty"`
	// PreviousRevision is the revision of the commit key that this commit replaced; 0 for the first.
	PreviousRevision uint64 `json:"previous_revision"`
	// PublishedAt is the leader's wall clock. Diagnostic only.
	PublishedAt time.Time `json:"published_at"`
	// Nonce identifies the publishing attempt, so that a leader that got no answer can recognise its own commit.
	Nonce string `json:"nonce"`
}

// ShardRef refers to a shard of the index: a run of worker references sorted by ID.
type ShardRef struct {
	// First is the ID of the first worker in the shard.
	First string `json:"first"`
	// Hash is the content address of the shard.
	Hash string `json:"hash"`
}

// AssignmentPayloadRef says what one worker owns under a commit.
type AssignmentPayloadRef struct {
	WorkerID    string `json:"w"`
	Incarnation string `json:"i"`
	// PayloadHash is the content address of the worker's payload: the lower-case hexadecimal sha256 of its canonical,
	// uncompressed bytes.
	PayloadHash string `json:"p"`
	// SetDigest covers which partitions the payload holds, and their epochs, independently of its encoding.
	SetDigest string `json:"d"`
	// GraceUntil, where not 0, keeps the worker's partitions in place after it said that it restarts: until this Unix time in
	// milliseconds, on the leader's clock.
	GraceUntil int64 `json:"g,omitempty"`
}

// Holder returns the worker and incarnation that the reference is for.
func (r AssignmentPayloadRef) Holder() Holder {
	return Holder{Worker: r.WorkerID, Incarnation: r.Incarnation}
}

// AssignmentShard is a run of worker references, stored under its content address.
type AssignmentShard struct {
	Schema int                    `json:"schema"`
	Refs   []AssignmentPayloadRef `json:"refs"`
}

// AssignmentPayload is what one worker owns: entries sorted by partition ID. It holds only what stays the same as long as
// the ownership does, so that an unchanged slice keeps its content address across commits.
type AssignmentPayload struct {
	Schema  int               `json:"schema"`
	Entries []AssignmentEntry `json:"entries"`
}

// AssignmentEntry is one partition under a commit.
type AssignmentEntry struct {
	Partition
	// Epoch is the version of the commit in which the present owner (ID and incarnation) got the partition: its fencing token.
	// 0 for an entry without an owner.
	Epoch int64 `json:"epoch,omitempty"`
	// From lists the earlier holders that may still run the partition, one item per incarnation, sorted by worker and
	// incarnation. It is history, not state: an item may name a holder that has long released it.
	From []From `json:"from,omitempty"`
}

// From is an earlier holder of a partition.
type From struct {
	Holder
	// Version is the commit that took the partition away from the holder: a holder that has applied it, and reports that
	// nothing of the partition is still running, has released it.
	Version int64 `json:"version"`
}

// ParkedPayload lists the entries without an owner, sorted by partition ID.
type ParkedPayload struct {
	Schema  int           `json:"schema"`
	Entries []ParkedEntry `json:"entries"`
}

// ParkedEntry is a partition that nobody owns under a commit.
type ParkedEntry struct {
	AssignmentEntry
	// Reason says why, in words for an operator.
	Reason string `json:"reason,omitempty"`
	// Retired marks a partition that is no longer in the source and is kept only because a holder is not proved to have
	// released it.
	Retired bool `json:"retired,omitempty"`
}

// AssignmentCommitLog is a copy of a commit under a key of its own, for as long as the values it refers to are kept.
type AssignmentCommitLog struct {
	AssignmentCommit
}
