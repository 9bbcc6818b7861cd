package parti

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/partigo/parti/types"
)

// Status is everything that a health page of one worker shows. It is a copy, made without asking the server.
//
// In JSON the state is its name, LeaseLeft is written as "12.5s", LastError is its text, and "ready" is there in addition, see [Status.Ready].
type Status struct {
	State    State  `json:"state"`
	WorkerID string `json:"worker_id"`
	// Incarnation is the present life of the ID; empty while there is none.
	Incarnation string `json:"incarnation,omitempty"`
	Role        Role   `json:"role"`
	// Leader is the ID of the leader as last heard; empty where none is known. Leading reports whether it is this worker.
	Leader  string `json:"leader,omitempty"`
	Leading bool   `json:"leading"`
	// LeaseLeft is how long this worker may go on without reaching the server; 0 where it may not.
	LeaseLeft time.Duration `json:"lease_left"`
	// AppliedVersion is the commit that this worker follows; Behind reports that it knows of a newer one,
	// be it one that it cannot read.
	AppliedVersion int64 `json:"applied_version"`
	Behind         bool  `json:"behind"`
	// Assigned, Waiting, Running, Draining and Lost count partitions by their state, see [types.OwnershipState]: given by the commit applied
	// last, which this worker's heartbeat does not say yet; not yet released by earlier holders; started and not cancelled; revoked and not
	// returned yet; not returned yet although the lease has ended.
	Assigned int `json:"assigned"`
	Waiting  int `json:"waiting"`
	Running  int `json:"running"`
	Draining int `json:"draining"`
	Lost     int `json:"lost"`
	// Drained reports whether an order stands that keeps this worker from being given anything, see [Drain]; as last heard.
	Drained bool `json:"drained"`
	// Parked is the number of partitions of the source that nobody owns, under the commit applied last.
	Parked int `json:"parked"`
	// WorkersBehind are the workers that heartbeat and do not follow the commit, and WorkersDamped those that are given nothing for now
	// because they come and go, or were evicted as stuck; WorkersStandingBy are those beyond MaxWorkers. Known to the leader only.
	WorkersBehind     []string `json:"workers_behind,omitempty"`
	WorkersDamped     []string `json:"workers_damped,omitempty"`
	WorkersStandingBy []string `json:"workers_standing_by,omitempty"`
	// StrategyFailures is how often in a row the strategy has failed: meanwhile the last good assignment stays, and what has no owner goes
	// to the worker with the least load. Known to the leader only.
	StrategyFailures int `json:"strategy_failures,omitempty"`
	// Overdue are the partitions whose handler ignores that its context has ended.
	Overdue []string `json:"overdue,omitempty"`
	// Degraded says why the state is StateDegraded; empty otherwise. DegradedSince is since when.
	Degraded      string    `json:"degraded,omitempty"`
	DegradedSince time.Time `json:"degraded_since,omitzero"`
	// LastError is the last error that nobody waited for, and when it happened.
	LastError   error     `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Ready reports whether the worker takes full part: it follows the newest commit it knows of, and nothing it should run waits.
func (s Status) Ready() bool {
	switch s.State {
	case types.StateInit, types.StateJoining, types.StateWaiting, types.StateDegraded, types.StateStopping, types.StateStopped:
		return false
	}
	return !s.Behind && s.Assigned == 0 && s.Waiting == 0
}

// count adds one of the worker's partitions.
func (s *Status) count(p types.PartitionStatus) {
	switch p.State {
	case types.OwnershipAssigned:
		s.Assigned++
	case types.OwnershipWaiting:
		s.Waiting++
	case types.OwnershipRunning:
		s.Running++
	case types.OwnershipDraining:
		s.Draining++
	case types.OwnershipLost:
		s.Lost++
	}
	if p.Overdue {
		s.Overdue = append(s.Overdue, p.ID)
	}
}

// health is the owner of the Manager's state: it derives it from what the parts report, and tells about changes.
type health struct {
	notify func(StateChange) // called in order, one at a time, without mu: it may ask for the state; must not block

	mu       sync.Mutex
	settled  *sync.Cond    // signalled when everything has been told
	untold   []StateChange // happened, and not told yet
	telling  bool          // somebody is telling
	phase    types.State   // init, joining, waiting, stable, stopping, stopped
	term     uint64        // of this worker's lead; 0: it does not lead
	leader   types.CalculatorState
	degraded map[string]string // reason by cause
	state    types.State
	since    time.Time // of the state
	lastErr  error
	lastAt   time.Time
}

func newHealth(notify func(StateChange)) *health {
	h := &health{notify: notify, degraded: map[string]string{}}
	h.settled = sync.NewCond(&h.mu)
	return h
}

func (h *health) setPhase(phase types.State, reason string) {
	h.update(reason, func() { h.phase = phase })
}

// advance sets the phase unless the Manager is already stopping.
func (h *health) advance(phase types.State, reason string) {
	h.update(reason, func() {
		if h.phase < types.StateStopping {
			h.phase = phase
		}
	})
}

// claimed begins an incarnation, which is the end of what kept the worker from having one.
func (h *health) claimed(reason string) {
	h.update(reason, func() {
		if h.phase < types.StateStopping {
			h.phase = types.StateWaiting
		}
		for _, c := range []string{causeStart, causeConnection, causeFenced} {
			delete(h.degraded, c)
		}
	})
}

// lead begins this worker's term; 0 ends it, and with it what its calculator has reported.
func (h *health) lead(term uint64) {
	h.update("no longer leading", func() {
		h.term, h.leader = term, types.CalculatorIdle
		for _, c := range []string{causeListing, causeOrders, causeHold, causePublish} {
			delete(h.degraded, c)
		}
	})
}

// setCalculator and degradeLeader take what the calculator of the term reports. It counts as long as the term lasts.
func (h *health) setCalculator(term uint64, s types.CalculatorState, reason string) {
	h.update(reason, func() {
		if term == h.term {
			h.leader = s
		}
	})
}

func (h *health) degradeLeader(term uint64, cause, reason string) {
	h.update(reason, func() {
		if term == h.term {
			h.degraded[cause] = reason
		}
	})
}

func (h *health) degrade(cause, reason string) {
	h.update(reason, func() { h.degraded[cause] = reason })
}

func (h *health) recover(causes ...string) {
	h.update(strings.Join(causes, ", ")+" recovered", func() {
		for _, c := range causes {
			delete(h.degraded, c)
		}
	})
}

func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !errors.Is(h.lastErr, ErrConnectionClosed) { // that one is final, what fails after it is its consequence
		h.lastErr, h.lastAt = err, time.Now()
	}
}

func (h *health) update(reason string, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	if next := h.derive(); next != h.state {
		c := StateChange{From: h.state, To: next, At: time.Now(), Reason: reason}
		h.state, h.since = next, c.At
		h.untold = append(h.untold, c)
		h.tell()
	}
}

// tell tells what has happened, unless somebody is at it, who will go on with this. Held: mu, which is released meanwhile.
func (h *health) tell() {
	if h.telling {
		return
	}
	h.telling = true
	for len(h.untold) > 0 {
		c := h.untold[0]
		h.untold = h.untold[1:]
		h.mu.Unlock()
		h.notify(c)
		h.mu.Lock()
	}
	h.telling = false
	h.settled.Broadcast()
}

// settle returns when everything that has happened was told.
func (h *health) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.telling {
		h.settled.Wait()
	}
}

// derive is the rule: stopping and joining (unless that takes too long) come first, then degraded, then what the leader does, then following. Held: mu.
func (h *health) derive() types.State {
	switch {
	case h.phase == types.StateJoining && h.degraded[causeStart] != "":
		return types.StateDegraded
	case h.phase == types.StateInit, h.phase == types.StateJoining, h.phase >= types.StateStopping:
		return h.phase
	case len(h.degraded) > 0:
		return types.StateDegraded
	}
	switch h.leader {
	case types.CalculatorScaling:
		return types.StateScaling
	case types.CalculatorRebalancing:
		return types.StateRebalancing
	case types.CalculatorEmergency:
		return types.StateEmergency
	}
	return h.phase
}

func (h *health) fill(s *Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.State, s.LastError, s.LastErrorAt = h.state, h.lastErr, h.lastAt
	if h.state == types.StateDegraded {
		s.Degraded, s.DegradedSince = strings.Join(slices.Sorted(maps.Values(h.degraded)), "; "), h.since
	}
}

func (h *health) get() types.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// drainError names the runs that had not returned when Stop's context ended.
func drainError(runs []types.Run) error {
	if len(runs) == 0 {
		return nil
	}
	names := make([]string, 0, len(runs))
	for _, r := range runs {
		names = append(names, fmt.Sprintf("%s (epoch %d)", r.Partition, r.Epoch))
	}
	slices.Sort(names)
	const most = 10
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return fmt.Errorf("%w: %s: they are released when their lease has run out; let handlers return when their context "+
		"ends; the hooks OnAssigned and OnRevoked count as part of them",
		ErrDrainTimeout, strings.Join(names, ", "))
}
