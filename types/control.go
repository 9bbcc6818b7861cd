package types

import (
	"encoding/json"
	"fmt"
	"time"
)

// ControlPrefix precedes the name of an order in its key in the control bucket.
const ControlPrefix = "control."

// ControlKind is what an operator wants of the leader.
type ControlKind string

// The kinds of orders.
const (
	// ControlDrain: the worker stays up, its partitions go to others, and it is given nothing until undrained.
	ControlDrain ControlKind = "drain"
	// ControlUndrain ends a drain.
	ControlUndrain ControlKind = "undrain"
	// ControlEvictWorker: the worker's key is deleted, so that it ends what it runs, and what it had goes to others.
	ControlEvictWorker ControlKind = "evict-worker"
	// ControlEvictPartition: one partition goes from the worker to another one.
	ControlEvictPartition ControlKind = "evict-partition"
)

// DrainMode says how the partitions of a worker that is drained go to others.
type DrainMode string

// The modes of a drain.
const (
	// DrainAllAtOnce moves everything with one commit.
	DrainAllAtOnce DrainMode = "all-at-once"
	// DrainOneByOne moves a partition when the worker has returned the one before.
	DrainOneByOne DrainMode = "one-by-one"
)

// ControlState is what has become of an order.
type ControlState string

// The states of an order. One that is open waits for a leader.
const (
	ControlOpen     ControlState = ""
	ControlAccepted ControlState = "accepted"
	ControlDone     ControlState = "done"
	ControlRefused  ControlState = "refused"
)

// ControlOrder is the value of a key control.<name>: the order, and beside it what the leader answered. Operators write the upper
// part; the leader replaces the value by compare-and-swap. An order that was accepted binds every later leader.
type ControlOrder struct {
	Kind   ControlKind `json:"kind"`
	Worker string      `json:"worker"`
	// Partition is the ID of the partition to evict.
	Partition string `json:"partition,omitempty"`
	// Mode of a drain; empty is DrainAllAtOnce.
	Mode DrainMode `json:"mode,omitempty"`
	// RequestedBy and At say who asked and when, by their own clock. Diagnostic only.
	RequestedBy string    `json:"requested_by,omitempty"`
	At          time.Time `json:"at,omitzero"`

	State ControlState `json:"state,omitempty"`
	// Reason says, in words, why it was refused, or what was done.
	Reason string `json:"reason,omitempty"`
	// By is the leader that answered, AnsweredAt when, by its clock.
	By         string    `json:"by,omitempty"`
	AnsweredAt time.Time `json:"answered_at,omitzero"`
	// Incarnation is the life of the worker that an eviction is about: its successors are not evicted.
	Incarnation string `json:"incarnation,omitempty"`
}

// ControlKey returns the key under which an order about the worker belongs. There is one for drain and undrain of a worker, so that
// the last order stands; evictions have names of their own.
func ControlKey(kind ControlKind, worker, name string) string {
	switch kind {
	case ControlDrain, ControlUndrain:
		return ControlPrefix + "drain-" + worker
	}
	return ControlPrefix + name
}

// Answered reports whether the leader has decided about the order.
func (o *ControlOrder) Answered() bool { return o.State != ControlOpen }

// Drains reports whether the order, where it was accepted, keeps its worker from being given anything.
func (o *ControlOrder) Drains() bool {
	return o.Kind == ControlDrain && (o.State == ControlAccepted || o.State == ControlDone)
}

// Encode returns the order as JSON.
func (o *ControlOrder) Encode() ([]byte, error) { return json.Marshal(o) }

// maxReason bounds what is repeated of somebody else's words.
const maxReason = 512

// DecodeControlOrder decodes the value found under key. Errors wrap [ErrMalformed] and say what is wrong; what could be read is returned
// with them.
func DecodeControlOrder(key string, data []byte) (ControlOrder, error) {
	var o ControlOrder
	if err := json.Unmarshal(data, &o); err != nil {
		return ControlOrder{}, fmt.Errorf("%w: no JSON of an order: %.*s", ErrMalformed, maxReason, err.Error())
	}
	return o, o.check(key)
}

func (o *ControlOrder) check(key string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	switch o.State {
	case ControlOpen, ControlAccepted, ControlDone, ControlRefused:
	default:
		return bad("state %.64q: leave it out, the leader writes it", string(o.State))
	}
	if o.State == ControlRefused {
		return nil // whatever it was
	}
	switch o.Kind {
	case ControlDrain, ControlUndrain, ControlEvictWorker, ControlEvictPartition:
	default:
		return bad("kind %.64q: use %q, %q, %q or %q", string(o.Kind), ControlDrain, ControlUndrain, ControlEvictWorker, ControlEvictPartition)
	}
	if err := ValidateWorkerID(o.Worker); err != nil {
		return bad("worker: %.*s", maxReason, err.Error())
	}
	switch {
	case o.Mode != "" && o.Kind != ControlDrain:
		return bad("mode %.64q: only a drain has one", string(o.Mode))
	case o.Mode != "" && o.Mode != DrainAllAtOnce && o.Mode != DrainOneByOne:
		return bad("mode %.64q: use %q or %q", string(o.Mode), DrainAllAtOnce, DrainOneByOne)
	case o.Partition == "" && o.Kind == ControlEvictPartition:
		return bad("partition is empty: give the partition's ID")
	case o.Partition != "" && o.Kind != ControlEvictPartition:
		return bad("partition %.64q: only an eviction of a partition has one", o.Partition)
	}
	if (o.Kind == ControlDrain || o.Kind == ControlUndrain) && key != ControlKey(o.Kind, o.Worker, "") {
		return bad("the key is %.128q: drain and undrain of a worker belong under %q", key, ControlKey(o.Kind, o.Worker, ""))
	}
	if (o.Kind == ControlEvictWorker || o.Kind == ControlEvictPartition) && o.Answered() && o.Incarnation == "" {
		return bad("an answered eviction names an incarnation")
	}
	return nil
}
