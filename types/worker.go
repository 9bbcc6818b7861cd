package types

import "fmt"

// MaxWorkerIDLength bounds a worker ID, in bytes: the ID is one token of the heartbeat key and appears in every commit.
const MaxWorkerIDLength = 64

// ValidateWorkerID reports why id cannot name a worker: it must be 1 to [MaxWorkerIDLength] bytes of [A-Za-z0-9_-], so that
// it is one token of a key, and not begin with '_', which marks the protocol's own keys. The error wraps [ErrInvalidWorkerID].
func ValidateWorkerID(id string) error {
	if id == "" || len(id) > MaxWorkerIDLength {
		return fmt.Errorf("%w %q: it must have 1 to %d bytes", ErrInvalidWorkerID, id, MaxWorkerIDLength)
	}
	if id[0] == '_' {
		return fmt.Errorf("%w %q: a leading '_' marks the protocol's own keys; write \"w%s\"", ErrInvalidWorkerID, id, id)
	}
	for i := range len(id) {
		if c := id[i]; !plainByte(c) || c == '/' {
			return fmt.Errorf("%w %q: only letters, digits, '-' and '_' are allowed (a dot would split the key; "+
				"write \"host-1\" for \"host.1\")", ErrInvalidWorkerID, id)
		}
	}
	return nil
}

// Worker is a live worker as a strategy sees it.
type Worker struct {
	// ID is the worker's ID, unique within the group.
	ID string `json:"id"`

	// Labels are the labels that the worker carries, sorted.
	Labels []string `json:"labels,omitempty"`

	// Capacity is what the worker takes at most. The leader enforces it whatever a strategy answers; a strategy may heed it.
	Capacity Capacity `json:"capacity,omitzero"`
}

// Holder names one life of a worker: an ID together with the incarnation that a claim of this ID began.
type Holder struct {
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"`
}

// String returns worker/incarnation.
func (h Holder) String() string { return h.Worker + "/" + h.Incarnation }
