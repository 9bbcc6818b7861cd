package types

import (
	"encoding/json"
	"time"
)

// Ownership is one run of a partition by this worker.
type Ownership struct {
	Partition Partition `json:"partition"`
	// Epoch is the fencing token: it grows with every change of owner of the partition, for ever. Pass it to the sink along
	// with each write, and have the sink refuse a lower one than it has seen.
	Epoch int64 `json:"epoch"`
	// Holder is the worker and incarnation that owns the partition.
	Holder Holder `json:"holder"`
}

// OwnershipState is where one ownership of a partition stands on its worker.
type OwnershipState uint8

// The states of an ownership: Assigned → Waiting → Running → Draining or Lost → Released. Any of the first three may be left out or be the
// last before Released: what nobody has to release is never Waiting, and what is taken away before it has started never runs.
const (
	// OwnershipAssigned: a commit that this worker has applied gives it the partition, and the server has no heartbeat yet that says so, or
	// the lease does not hold. Before that nothing starts, and what has to be waited for is not decided.
	OwnershipAssigned OwnershipState = iota
	// OwnershipWaiting: not yet proved released by an earlier holder, or an earlier run on this worker has not returned.
	OwnershipWaiting
	// OwnershipRunning: started and not cancelled. It begins before OnAssigned and the handler are called.
	OwnershipRunning
	// OwnershipDraining: revoked, and its handler and hooks have not returned yet.
	OwnershipDraining
	// OwnershipLost: the lease ended, and its handler and hooks have not returned yet. Others start it without waiting for them.
	OwnershipLost
	// OwnershipReleased: not owned here; handler and hooks have returned, or it has never started. It is the From of the first
	// [OwnershipChange] of an ownership and the To of the last one, and is not listed by Manager.Partitions. Other workers hear of it from the
	// next heartbeat.
	OwnershipReleased
)

var ownershipNames = [...]string{"assigned", "waiting", "running", "draining", "lost", "released"}

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

// OwnershipChange is a transition of one ownership. From of each is To of the one before, unless some were dropped in between.
//
// In JSON the states are their names and Cause is its text.
type OwnershipChange struct {
	Ownership
	From OwnershipState `json:"from"`
	To   OwnershipState `json:"to"`
	At   time.Time      `json:"at"`
	// Cause says why it ends; nil before it does. It is [ErrRevoked] where a commit gave the partition to another or took it from the
	// group, [ErrStopped] where the Manager stops (the context of the partition has [ErrRevoked] then), and otherwise why this incarnation of
	// the worker is over: [ErrLeaseExpired], or that its key was lost (the context has ErrLeaseExpired then).
	Cause error `json:"cause,omitempty"`
	// Forced marks a start after HandoffTimeout: the holders in WaitingFor are not known to have released the partition.
	Forced bool `json:"forced,omitempty"`
	// WaitingFor are the earlier holders that are waited for, where To is Waiting. There are none where it waits only for an earlier run on
	// this worker.
	WaitingFor []Holder `json:"waiting_for,omitempty"`
}

// MarshalJSON writes the cause as its text.
func (c OwnershipChange) MarshalJSON() ([]byte, error) {
	type plain OwnershipChange
	out := struct {
		plain
		Cause string `json:"cause,omitempty"`
	}{plain: plain(c)}
	if c.Cause != nil {
		out.Cause = c.Cause.Error()
	}
	return json.Marshal(out)
}

// PartitionStatus is what one partition does on one worker. A partition that this worker lost and regained while its earlier run
// has not returned appears twice.
type PartitionStatus struct {
	ID    string         `json:"id"`
	Epoch int64          `json:"epoch"`
	State OwnershipState `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// WaitingFor are the earlier holders that are not proved to have released the partition, while it is Assigned or Waiting.
	WaitingFor []Holder `json:"waiting_for,omitempty"`
	// Overdue marks a handler that ignores that its context has ended.
	Overdue bool `json:"overdue,omitempty"`
}
