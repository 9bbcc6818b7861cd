package types

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// HeartbeatSchema is the schema of heartbeats that this release writes, and the highest it reads.
const HeartbeatSchema = 1

// MaxUnreturned is the number of runs that a heartbeat can name.
const MaxUnreturned = 64

// MaxRestartGrace is the longest time for which a restarting worker can ask to have its partitions kept: nobody runs them meanwhile.
const MaxRestartGrace = time.Hour

// Capabilities says which parts of the protocol a worker speaks, as a set of bits.
type Capabilities uint32

// The capabilities known to this release.
const (
	// CapAckV1: follows commits and acknowledges them in its heartbeat. A worker without it gets a plain alias instead.
	CapAckV1 Capabilities = 1 << iota
	// CapHandoffV1: honours `from`: starts a partition only when its earlier holders have released it.
	CapHandoffV1
	// CapLabelsV1: states its labels.
	CapLabelsV1
)

// Has reports whether every bit of want is set in c.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// WorkerState is what a worker says of itself in its heartbeat.
type WorkerState string

// The states of a worker. Left and restarting are a worker's last words: the key stays until it expires.
const (
	WorkerJoining    WorkerState = "joining"
	WorkerActive     WorkerState = "active"
	WorkerDraining   WorkerState = "draining"
	WorkerRestarting WorkerState = "restarting"
	WorkerLeft       WorkerState = "left"
	// WorkerCoordinating is the state of a process that leads or stands ready to, and takes no partitions. Whoever does not know the
	// state gives it none either.
	WorkerCoordinating WorkerState = "coordinating"
)

// Gone reports whether a worker in this state has ended its incarnation.
func (s WorkerState) Gone() bool { return s == WorkerLeft || s == WorkerRestarting }

// ClaimedOver says what lay under a worker's key when the incarnation claimed it. It is evidence about the one before.
type ClaimedOver string

// What a claim can succeed over.
const (
	ClaimedNothing    ClaimedOver = "nothing"
	ClaimedExpiry     ClaimedOver = "expiry"
	ClaimedLeft       ClaimedOver = "left"
	ClaimedRestarting ClaimedOver = "restarting"
	ClaimedOwn        ClaimedOver = "own"
)

// ProvesRelease reports whether a claim over this proves that no earlier incarnation of the ID runs anything: its lease had
// run out, or it had said so.
func (c ClaimedOver) ProvesRelease() bool {
	switch c {
	case ClaimedExpiry, ClaimedLeft, ClaimedRestarting, ClaimedOwn:
		return true
	}
	return false
}

// Run names one run of a partition: from the decision to start it until its handler has returned.
type Run struct {
	Partition string `json:"partition"` // the partition's ID
	Epoch     int64  `json:"epoch"`
}

// Heartbeat is the value of a worker's one key: claim, sign of life and acknowledgement.
//
// AppliedVersion and Unreturned belong together and must be read from one and the same heartbeat: of every run of this
// incarnation with an epoch up to AppliedVersion they say that the commit lists it under that epoch, or it has returned, or
// Unreturned names it.
type Heartbeat struct {
	WorkerID      string       `json:"worker_id"`
	Incarnation   string       `json:"incarnation"`
	SchemaVersion int          `json:"schema_version"`
	Capabilities  Capabilities `json:"capabilities"`
	Labels        []string     `json:"labels,omitempty"`
	Capacity      Capacity     `json:"capacity,omitzero"`
	State         WorkerState  `json:"state"`
	// Role is what the process may do besides; empty is [RoleWorker].
	Role Role `json:"role,omitempty"`
	// MaxWorkers is how many workers the process gives partitions to when it leads; 0: all.
	MaxWorkers int `json:"max_workers,omitempty"`

	// LeaderRevision is the term of the commit that was applied last.
	LeaderRevision uint64 `json:"leader_revision,omitempty"`
	AppliedVersion int64  `json:"applied_version"`
	// AppliedDigest is the set digest of what AppliedVersion lists for this incarnation.
	AppliedDigest              string    `json:"applied_digest,omitempty"`
	AppliedSourceRevision      uint64    `json:"applied_source_revision,omitempty"`
	AppliedSourceRevisionKnown bool      `json:"applied_source_revision_known,omitempty"`
	AppliedAt                  time.Time `json:"applied_at,omitzero"`
	// Unreturned names the runs that were told to end and have not returned; at most [MaxUnreturned].
	Unreturned []Run `json:"unreturned,omitempty"`

	// Draining counts all runs that were told to end and have not returned, also those that cannot be named. It releases nobody: it tells
	// who waits for handlers from who is stuck.
	Draining int `json:"draining,omitempty"`

	// RestartGrace, with state restarting, is how long the worker asks for its partitions to be kept in place, in milliseconds.
	RestartGrace int64       `json:"restart_grace_ms,omitempty"`
	ClaimedOver  ClaimedOver `json:"claimed_over"`
	// Nonce differs in every heartbeat sent, so that a worker that got no answer can recognise its own.
	Nonce string `json:"nonce"`
	// Timestamp is the worker's wall clock. Diagnostic only.
	Timestamp time.Time `json:"timestamp"`

	// Legacy is set by [DecodeHeartbeat] for a worker that writes a bare timestamp.
	Legacy bool `json:"-"`
}

// Holder returns the worker and incarnation that the heartbeat speaks for.
func (h *Heartbeat) Holder() Holder { return Holder{Worker: h.WorkerID, Incarnation: h.Incarnation} }

// Plain reports whether the worker does not speak the commit protocol: it follows its alias, and acknowledges nothing.
func (h *Heartbeat) Plain() bool { return !h.Capabilities.Has(CapAckV1) }

// Names reports whether the heartbeat names a run of the partition under any epoch.
func (h *Heartbeat) Names(partitionID string) bool {
	return slices.ContainsFunc(h.Unreturned, func(r Run) bool { return r.Partition == partitionID })
}

// DecodeHeartbeat decodes the value found under the key of workerID: JSON of schema 1, or the bare RFC 3339 timestamp of a
// worker that does not speak the commit protocol. Errors wrap [ErrMalformed] or [ErrUnsupportedSchema].
func DecodeHeartbeat(workerID string, data []byte) (Heartbeat, error) {
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) == 0 {
		return Heartbeat{}, fmt.Errorf("%w: heartbeat of %q is empty", ErrMalformed, workerID)
	}
	if trimmed[0] != '{' {
		ts, err := time.Parse(time.RFC3339Nano, strings.Trim(string(trimmed), `"`))
		if err != nil {
			return Heartbeat{}, fmt.Errorf("%w: heartbeat of %q is neither JSON nor an RFC 3339 timestamp", ErrMalformed, workerID)
		}
		return Heartbeat{WorkerID: workerID, State: WorkerActive, Timestamp: ts, Legacy: true}, nil
	}
	var h Heartbeat
	if err := json.Unmarshal(trimmed, &h); err != nil {
		return Heartbeat{}, fmt.Errorf("%w: heartbeat of %q: %w", ErrMalformed, workerID, err)
	}
	return h, h.check(workerID)
}

func (h *Heartbeat) check(workerID string) error {
	switch {
	case h.SchemaVersion > HeartbeatSchema:
		return fmt.Errorf("%w: heartbeat of %q has schema %d, this release reads up to %d",
			ErrUnsupportedSchema, workerID, h.SchemaVersion, HeartbeatSchema)
	case h.SchemaVersion < 1:
		return fmt.Errorf("%w: heartbeat of %q has no schema_version", ErrMalformed, workerID)
	case h.WorkerID != workerID:
		return fmt.Errorf("%w: heartbeat under the key of %q speaks for %q", ErrMalformed, workerID, h.WorkerID)
	case h.Capabilities.Has(CapAckV1) && h.Incarnation == "":
		return fmt.Errorf("%w: heartbeat of %q has no incarnation", ErrMalformed, workerID)
	case h.AppliedVersion != 0 && !ValidVersion(h.AppliedVersion):
		return fmt.Errorf("%w: heartbeat of %q has applied_version %d, versions lie between 0 and %d",
			ErrMalformed, workerID, h.AppliedVersion, VersionLimit())
	case slices.ContainsFunc(h.Unreturned, func(r Run) bool { return r.Epoch != 0 && !ValidVersion(r.Epoch) }):
		return fmt.Errorf("%w: heartbeat of %q names a run of an epoch that is none: they lie between 0 and %d",
			ErrMalformed, workerID, VersionLimit())
	case len(h.Unreturned) > MaxUnreturned:
		return fmt.Errorf("%w: heartbeat of %q names %d runs, at most %d are allowed", ErrMalformed, workerID, len(h.Unreturned), MaxUnreturned)
	}
	return nil
}

// Encode returns the heartbeat as JSON.
func (h *Heartbeat) Encode() ([]byte, error) {
	if len(h.Unreturned) > MaxUnreturned {
		return nil, fmt.Errorf("%w: %d unreturned runs, at most %d fit", ErrMalformed, len(h.Unreturned), MaxUnreturned)
	}
	return json.Marshal(h)
}
