// Package ownership runs the partitions that commits give to this worker: it starts a partition only when no earlier holder
// can still be running it, ends it when it is taken away, and composes what the worker's heartbeat says about both.
//
// What an acknowledgement means is decided here. Applying a commit, deciding to start a run, and composing a heartbeat are
// steps under one lock, so a heartbeat never claims more than is true at the moment it is composed. The lock is never held
// over a call to the server, to a handler or to a hook.
//
// A partition has at most one run at a time on this worker, whatever any timeout says.
package ownership

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/types"
)

// Commit is what a commit says to this worker.
type Commit struct {
	// Holder is the incarnation that the commit was looked up for.
	Holder              types.Holder
	Version             int64
	LeaderRevision      uint64
	Lifecycle           string
	SourceRevision      uint64
	SourceRevisionKnown bool
	// Digest is the set digest of Entries; empty where the commit does not list this incarnation.
	Digest string
	// Entries are sorted by partition ID; nil where the commit does not list this incarnation.
	Entries []types.AssignmentEntry
}

// Lease is the part of a worker's lease that is read here.
type Lease interface {
	Valid() bool
	Left() time.Duration
}

// Hooks are called for single partitions: in order for one partition, in parallel over partitions. Any may be nil.
type Hooks struct {
	OnAssigned func(types.Ownership)
	OnRevoked  func(types.Ownership)
	OnLost     func(types.Ownership)
	// OnOwnership is called for every transition. Nothing but Told waits for it.
	OnOwnership func(types.OwnershipChange)
}

// Handler runs a partition until its context ends.
type Handler func(ctx context.Context, o types.Ownership) error

// Config says what to run and how to reach the rest of the worker.
type Config struct {
	// Available keeps partitions running when the lease has run out.
	Available bool
	Handler   Handler
	Hooks     Hooks
	// DrainTimeout is after how long a handler that ignores its context is reported.
	DrainTimeout time.Duration
	// HandoffTimeout is how long to wait for earlier holders; negative: for ever.
	HandoffTimeout time.Duration
	// FenceGrace is how long handlers may take to return after the lease ended.
	FenceGrace   time.Duration
	HeartbeatTTL time.Duration
	Lease        Lease
	Observer     Observer
	// Notify asks for a heartbeat soon. It must not block.
	Notify func()
	// Failed is told of handlers that return although they own their partition. It must not block.
	Failed func(error)
	// Expired tells that the lease of the incarnation has run out. It must not block.
	Expired func(incarnation string)

	Metrics types.ManagerMetrics
	Logger  *slog.Logger
}

// slot is one partition that is assigned to this worker or still runs here.
type slot struct {
	id    string
	epoch int64 // under which the applied commit gives it to this worker; 0: it does not
	want  *want // what is not started yet of that; nil: nothing
	run   *run  // the run that has not returned; nil: none
	// running is the same as long as it was not told to end, for those who do not hold the runtime's lock.
	running atomic.Pointer[run]
}

// Runtime is the state of all partitions of one worker.
type Runtime struct {
	cfg    Config
	wake   chan struct{} // for the acquiring loop
	slots  index
	origin time.Time // when it was made

	mu       sync.Mutex // guards everything below
	holder   types.Holder
	me       *types.Holder   // the same, for runs to share
	own      map[string]bool // incarnations of this process
	fenced   bool
	stopping bool
	commit   Commit        // applied last
	applies  uint64        // number of apply steps
	at       time.Time     // of the last one, wall clock
	report   report        // what heartbeats say
	composed []composition // heartbeats composed and not known to be stored
	stored   uint64        // the apply step that the server's newest heartbeat reflects
	storedAt uint64        // its revision
	// storedFrom is when it was composed: whatever shows it shows the store as it was later.
	storedFrom time.Time
	waiting    map[*slot]struct{}
	draining   map[*slot]struct{}
	idle       []chan struct{} // closed when no run is left
	expiry     *time.Timer
	heard      map[types.Holder]absence // holders whose key is gone without a proof, or is not renewed
	look       bool                     // something was heard that needs a fresh observation

	events *events // nil: nobody wants to know

	passive bool // neither handler nor hooks that a run waits for
	runs    sync.WaitGroup
	nRuns   atomic.Int64 // running now
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}
	start   sync.Once
}

// report is the pair that a heartbeat carries.
type report struct {
	commit Commit // whose version is reported
	at     time.Time
	names  []types.Run
}

type composition struct {
	nonce   string
	applied uint64
	at      time.Time
}

// New returns a runtime that runs nothing. Start starts its acquiring loop.
func New(cfg Config) *Runtime {
	ctx, cancel := context.WithCancel(context.Background())
	h := cfg.Hooks
	return &Runtime{
		events:  newEvents(&cfg),
		passive: cfg.Handler == nil && h.OnAssigned == nil && h.OnRevoked == nil && h.OnLost == nil,
		cfg:     cfg, wake: make(chan struct{}, 1), own: map[string]bool{}, slots: index{all: map[string]*slot{}},
		waiting: map[*slot]struct{}{}, draining: map[*slot]struct{}{}, heard: map[types.Holder]absence{},
		ctx: ctx, stop: cancel, done: make(chan struct{}), fenced: true, origin: time.Now(),
	}
}

// Begin begins an incarnation. What an earlier one ran has returned, unless ownership is Available.
func (r *Runtime) Begin(h types.Holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder, r.me, r.own[h.Incarnation], r.fenced = h, &h, true, false
	r.commit, r.applies, r.stored, r.storedAt, r.composed = Commit{}, r.applies+1, 0, 0, nil
	r.report = report{}
	r.watchLease()
}

// watchLease makes sure that the end of the lease is acted on, whatever any loop is doing then. Held: mu.
func (r *Runtime) watchLease() {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	incarnation := r.holder.Incarnation
	r.expiry = time.AfterFunc(r.cfg.Lease.Left(), func() {
		r.mu.Lock()
		if r.fenced || r.holder.Incarnation != incarnation {
			r.mu.Unlock()
			return
		}
		if r.cfg.Lease.Valid() { // renewed meanwhile
			r.watchLease()
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.Fence(types.ErrLeaseExpired)
		r.cfg.Metrics.LeaseExpired()
		r.cfg.Expired(incarnation)
	})
}

// Apply applies a commit. Versions decide: one that is not newer than what is applied is ignored, and so is one that was looked
// up for an incarnation that is over. It reports whether it was applied.
func (r *Runtime) Apply(c Commit) bool {
	r.mu.Lock()
	if r.fenced || c.Holder != r.holder || c.Version <= r.commit.Version {
		r.mu.Unlock()
		return false
	}
	r.applies++
	r.commit, r.at = c, time.Now().UTC()
	taken := r.assign(c.Entries)
	r.refit()
	changed := len(taken) > 0 || len(r.waiting) > 0 || r.stopping // what has returned already may be given to others by this one
	r.mu.Unlock()
	r.end(taken, types.ErrRevoked)
	if changed {
		r.cfg.Notify()
	}
	r.poke()
	r.gauge()
	r.cfg.Metrics.CommitApplied(c.Version, len(c.Entries))
	return true
}

// assign makes the slots say what the entries say and returns the runs that this takes away. Held: mu.
func (r *Runtime) assign(entries []types.AssignmentEntry) (taken []*run) {
	listed := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		id := e.ID()
		listed[id] = true
		s := r.slots.all[id]
		if s == nil {
			s = &slot{id: id}
			r.slots.add(s)
		}
		if s.epoch == e.Epoch {
			if s.want != nil {
				s.want.partition = e.Partition
			}
			continue
		}
		r.unwant(s, types.ErrRevoked)
		if run := r.cancel(s, types.OwnershipDraining, types.ErrRevoked); run != nil {
			taken = append(taken, run)
		}
		s.epoch = e.Epoch
		if !r.stopping { // nothing starts any more then
			r.give(s, e)
		}
	}
	for id, s := range r.slots.all {
		if listed[id] {
			continue
		}
		r.unwant(s, types.ErrRevoked)
		s.epoch = 0
		if run := r.cancel(s, types.OwnershipDraining, types.ErrRevoked); run != nil {
			taken = append(taken, run)
		}
		if s.run == nil {
			r.slots.delete(id)
		}
	}
	return taken
}

// Compose fills in what a heartbeat says about commits and runs, and remembers what it reflects. It returns false when there is
// no incarnation to speak for.
func (r *Runtime) Compose(h *types.Heartbeat) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced {
		return false
	}
	c := &r.report.commit
	h.LeaderRevision, h.AppliedVersion, h.AppliedDigest = c.LeaderRevision, c.Version, c.Digest
	h.AppliedSourceRevision, h.AppliedSourceRevisionKnown = c.SourceRevision, c.SourceRevisionKnown
	h.AppliedAt, h.Unreturned = r.report.at, append([]types.Run(nil), r.report.names...)
	h.Draining = len(r.draining)
	r.composed = append(r.composed, composition{h.Nonce, r.applies, time.Now()})
	if len(r.composed) > 32 {
		r.composed = r.composed[1:]
	}
	return true
}

// refit makes the pair that heartbeats carry say as much as fits: the newest version with every run that was told to end and
// has not returned, or, when those are too many, the last version whose list fitted with those of its names that have not
// returned. Held: mu.
func (r *Runtime) refit() {
	if len(r.draining) <= types.MaxUnreturned {
		names := make([]types.Run, 0, len(r.draining))
		for s := range r.draining {
			names = append(names, types.Run{Partition: s.id, Epoch: s.run.epoch})
		}
		r.report = report{commit: r.commit, at: r.at, names: names}
		return
	}
	kept := r.report.names[:0:0]
	for _, n := range r.report.names {
		if s := r.slots.all[n.Partition]; s != nil && s.run != nil && s.run.epoch == n.Epoch {
			kept = append(kept, n)
		}
	}
	r.report.names = kept
}

// Stored takes note that the server has the heartbeat, and starts what waited for that.
func (r *Runtime) Stored(h types.Heartbeat, revision uint64) {
	r.mu.Lock()
	if h.Incarnation != r.holder.Incarnation || r.fenced {
		r.mu.Unlock()
		return
	}
	for i, c := range r.composed {
		if c.nonce == h.Nonce {
			r.stored, r.storedAt, r.storedFrom = c.applied, revision, c.at
			r.composed = r.composed[i+1:]
			break
		}
	}
	r.watchLease()
	for s := range r.waiting {
		r.tryStart(s)
		r.settle(s)
	}
	r.mu.Unlock()
	r.poke()
	r.gauge()
}

func (r *Runtime) gauge() { r.cfg.Metrics.PartitionsRunning(int(r.nRuns.Load())) }

// tryStart starts the slot's partition if nothing forbids it. Held: mu.
func (r *Runtime) tryStart(s *slot) {
	w := s.want
	if w == nil || r.fenced || r.stopping || s.run != nil || r.stored < w.applied || !r.cfg.Lease.Valid() {
		return
	}
	if len(w.from) > 0 && !w.forced {
		return
	}
	delete(r.waiting, s)
	if len(r.waiting) == 0 {
		r.waiting = map[*slot]struct{}{} // a map keeps the memory of the most that it ever held
	}
	r.launch(s, w)
}

// poke wakes the acquiring loop.
func (r *Runtime) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
