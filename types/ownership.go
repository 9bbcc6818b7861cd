package types

import "time"

// Ownership is one run of a partition by this worker.
type Ownership struct {
	Partition Partition `json:"partition"`
	// Epoch is the fencing token: it grows with every change of owner of the partition, for ever. Pass it to the sink along
	// with each write, and have the sink refuse a lower one than it has seen.
	Epoch int64 `json:"epoch"`
	// Holder is the worker and incarnation that owns the partition.
	Holder Holder `json:"holder"`
}

// OwnershipState is what a partition is doing on a worker it is assigned to, or was.
type OwnershipState uint8

// The states of a partition on one worker: Waiting → Running → Draining → gone.
const (
	// OwnershipWaiting: assigned, and not yet proved released by an earlier holder.
	OwnershipWaiting OwnershipState = iota
	// OwnershipRunning: started and not cancelled.
	OwnershipRunning
	// OwnershipDraining: revoked, and the handler has not returned yet.
	OwnershipDraining
	// OwnershipLost: the lease ended, and the handler has not returned yet.
	OwnershipLost
)

var ownershipNames = [...]string{"waiting", "running", "draining", "lost"}

// String returns the state's name in lower case.
func (s OwnershipState) String() string {
	if int(s) >= len(ownershipNames) {
		return "unknown"
	}
	return ownershipNames[s]
}

// MarshalText returns the state's name.
func (s OwnershipState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the name of a state, and nothing else.
func (s *OwnershipState) UnmarshalText(text []byte) error {
	return unmarshalName(s, "state of a partition", text, ownershipNames[:])
}

// PartitionStatus is what one partition does on one worker. A partition that this worker lost and regained while its earlier run
// has not returned appears twice.
type PartitionStatus struct {
	ID    string         `json:"id"`
	Epoch int64          `json:"epoch"`
	State OwnershipState `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// WaitingFor are the earlier holders that are not proved to have released the partition.
	WaitingFor []Holder `json:"waiting_for,omitempty"`
	// Overdue marks a handler that ignores that its context has ended.
	Overdue bool `json:"overdue,omitempty"`
}
