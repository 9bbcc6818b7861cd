package parti

import (
	"time"

	"github.com/partigo/parti/types"
)

// View is what [Inspect] sees of a group. It is a copy.
type View struct {
	Namespace string `json:"namespace"`
	// HeartbeatTTL is the age at which the server ends a heartbeat, in nanoseconds in JSON.
	HeartbeatTTL time.Duration `json:"heartbeat_ttl"`
	// Leader is the holder of the leader key, and Term its term. Both are zero where nobody leads. A leader that crashed is shown until its key
	// has expired.
	Leader types.Holder `json:"leader,omitzero"`
	Term   uint64       `json:"term,omitempty"`
	// MaxWorkers is the leader's limit; 0: none.
	MaxWorkers int `json:"max_workers,omitempty"`

	// Version is the present commit's; 0: there is none. Reason is why it was made, At when, by its leader's clock.
	Version int64     `json:"version"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// SourceRevision is that of the partition list, where the source has one.
	SourceRevision uint64 `json:"source_revision,omitempty"`

	// Workers are those whose key holds a value, and those that the commit lists, sorted by ID.
	Workers []WorkerView `json:"workers"`
	// Partitions are those that somebody owns, sorted by ID; Parked those that nobody does.
	Partitions []PartitionView `json:"partitions"`
	Parked     []ParkedView    `json:"parked,omitempty"`
	// Orders are what operators have left, sorted by key, and answered or not.
	Orders []OrderView `json:"orders,omitempty"`
}

// WorkerView is one process of the group.
type WorkerView struct {
	ID          string `json:"id"`
	Incarnation string `json:"incarnation,omitempty"`
	Role        Role   `json:"role"`
	Leading     bool   `json:"leading,omitempty"`
	// State is what the worker says; empty where its key has expired or is gone, and the commit still lists it, or where it cannot be read.
	State    types.WorkerState `json:"state,omitempty"`
	Labels   []string          `json:"labels,omitempty"`
	Capacity types.Capacity    `json:"capacity,omitzero"`
	// AppliedVersion is the commit that it has applied last, AppliedAt when, by its clock. Behind: that is not the present one.
	AppliedVersion int64     `json:"applied_version"`
	AppliedAt      time.Time `json:"applied_at,omitzero"`
	Behind         bool      `json:"behind,omitempty"`
	// HeardAt is when the server stored its last heartbeat, by the server's clock.
	HeardAt time.Time `json:"heard_at,omitzero"`
	// Partitions is how many the commit gives it.
	Partitions int `json:"partitions"`
	// StandingBy: it is beyond MaxWorkers. Drained: an order keeps it from being given anything.
	StandingBy bool `json:"standing_by,omitempty"`
	Drained    bool `json:"drained,omitempty"`
	// GraceUntil, where not zero, is until when its partitions are kept while it restarts.
	GraceUntil time.Time `json:"grace_until,omitzero"`
	// Unreturned are the runs that were told to end and have not returned.
	Unreturned []types.Run `json:"unreturned,omitempty"`
	// Plain: it does not speak the commit protocol.
	Plain bool `json:"plain,omitempty"`
	// Fault says why its heartbeat cannot be read.
	Fault string `json:"fault,omitempty"`
}

// PartitionView is a partition with its owner. Whether the owner runs it already, only the owner knows.
type PartitionView struct {
	ID    string       `json:"id"`
	Label string       `json:"label,omitempty"`
	Owner types.Holder `json:"owner"`
	// Epoch is the fencing token.
	Epoch int64 `json:"epoch"`
}

// ParkedView is a partition that nobody owns.
type ParkedView struct {
	ID     string `json:"id"`
	Label  string `json:"label,omitempty"`
	Reason string `json:"reason"`
	// Retired: it has left the source, and is remembered because an earlier owner is not proved to have released it.
	Retired bool `json:"retired,omitempty"`
}

// OrderView is an operator's order, see [Drain].
type OrderView struct {
	Key string `json:"key"`
	types.ControlOrder
	// Fault says why it is no order.
	Fault string `json:"fault,omitempty"`
}
