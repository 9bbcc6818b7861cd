package parti

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/heartbeat"
	"github.com/partigo/parti/internal/lane"
	"github.com/partigo/parti/internal/ownership"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Manager is one worker of a group. It lives once: made, started, stopped. All methods are safe for concurrent use.
type Manager struct {
	set      settings
	js       jetstream.JetStream
	source   types.PartitionSource
	strategy types.AssignmentStrategy

	health  *health
	alarm   *alarm
	changes *broadcaster
	hooks   *lane.Lanes   // one, without a name
	calling *atomic.Value // the name of the hook that is called; empty or nil: none is
	lease   *heartbeat.Lease
	runtime *ownership.Runtime

	mu      sync.Mutex // guards the lifecycle: phase and parts
	phase   phase
	parts   *parts        // set once by Start
	stopped chan struct{} // closed when Stop has ended everything
	stopErr error
	// restartGrace is how long the group keeps everything in place after the Stop that has begun; 0: not at all.
	restartGrace time.Duration
	ready        chan struct{} // closed when the first commit has been applied
	readied      sync.Once
	described    sync.Once // the group's spec was left

	ctx    context.Context // ends when the Manager is stopped; for what runs in the background
	cancel context.CancelFunc
	jobs   sync.WaitGroup

	holder  atomic.Pointer[types.Holder]
	parked  atomic.Int64
	mending atomic.Bool

	candidacy candidacy
	drain     drainOrder
	stuck     time.Time // when it was said that the newest commit cannot be read; zero: it can. The follower's goroutine owns it
	lead      leadership
}

type phase uint8

const (
	made phase = iota
	starting
	running
	stopping
)

// parts are what exists only after the buckets were found.
type parts struct {
	buckets kv.Buckets
	// created is when the control and the heartbeat bucket in use were made; whoever mends them owns it.
	created    [2]time.Time
	feed       *feed
	heartbeats *heartbeat.Publisher
	elector    *election.Elector
	follower   *assignment.Follower
}

// NewManager returns a Manager that has not started. It checks everything that can be checked without the server and reports all
// faults at once; see [Config.Validate] for their kinds.
func NewManager(js jetstream.JetStream, source types.PartitionSource, strategy types.AssignmentStrategy, opts ...Option) (*Manager, error) {
	set := settings{Config: DefaultConfig()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("%w: an option is nil", ErrInvalidConfig))
			continue
		}
		o(&set)
	}
	set.setDefaults()
	if js == nil {
		errs = append(errs, fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", ErrInvalidConfig))
	}
	if isNil(strategy) {
		errs = append(errs, fmt.Errorf("%w: the strategy is nil: use strategy.Sticky()", ErrInvalidConfig))
	}
	errs = append(errs, set.Validate(), set.validateRole(), checkSource(source))
	if v, ok := strategy.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return build(js, source, strategy, set), nil
}

// isNil reports whether v is nil, or an interface that holds a nil pointer or a nil function.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	p := reflect.ValueOf(v)
	return (p.Kind() == reflect.Pointer || p.Kind() == reflect.Func) && p.IsNil()
}

// checkSource asks a source that can tell beforehand whether it can work.
func checkSource(source types.PartitionSource) error {
	if isNil(source) {
		return fmt.Errorf("%w: the source is nil: use source.Static(partitions...)", ErrInvalidConfig)
	}
	if s, ok := source.(interface{ Validate() error }); ok {
		return s.Validate()
	}
	return nil
}

func build(js jetstream.JetStream, source types.PartitionSource, strategy types.AssignmentStrategy, set settings) *Manager {
	calling := &atomic.Value{}
	set.hooks = set.hooks.watched(calling)
	m := &Manager{
		calling: calling, set: set, js: js, source: source, strategy: strategy,
		stopped: make(chan struct{}), ready: make(chan struct{}), lease: heartbeat.NewLease(set.timing()),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	dropped := func(n int) { set.Metrics.ChangesDropped(n) }
	m.changes = newBroadcaster(dropped)
	m.hooks = lane.New(groupHooks, dropped, func(_ string, v any, stack []byte) {
		set.Logger.Error("panic in a hook", "panic", v, "stack", string(stack))
	})
	m.alarm = &alarm{
		levels: [...]time.Duration{set.DegradedWarn, set.DegradedError, set.DegradedCritical},
		raise:  m.alert, reason: func() string { return m.Status().Degraded },
	}
	states := &stateLog{log: set.Logger}
	m.health = newHealth(func(c StateChange) {
		set.Metrics.StateChanged(c.From, c.To)
		states.write(c)
		m.changes.send(c)
		switch types.StateDegraded {
		case c.To:
			m.alarm.enter(c.At)
		case c.From:
			m.alarm.leave()
		}
		m.call(hook(set.hooks.OnStateChanged, c))
	})
	m.runtime = ownership.New(ownership.Config{
		Available: set.Ownership == Available, Handler: ownership.Handler(set.handler),
		Hooks: ownership.Hooks{
			OnAssigned: set.hooks.OnAssigned, OnRevoked: set.hooks.OnRevoked, OnLost: set.hooks.OnLost, OnOwnership: set.hooks.OnOwnership,
		},
		DrainTimeout: set.DrainTimeout, HandoffTimeout: set.HandoffTimeout,
		FenceGrace: set.timing().FenceGrace, HeartbeatTTL: set.HeartbeatTTL,
		Lease: m.lease, Observer: observer{m},
		Notify:  func() { m.parts.heartbeats.Notify() },
		Failed:  m.fail,
		Expired: func(incarnation string) { m.parts.heartbeats.Fence(incarnation, ErrLeaseExpired) },
		Metrics: set.Metrics, Logger: set.Logger,
	})
	return m
}

// call adds a group hook to its lane; nil is ignored.
func (m *Manager) call(f func()) {
	if f != nil {
		m.hooks.Add("", f)
	}
}

// Start makes this worker take part: it finds or creates the buckets and claims an ID. It returns when the worker has an ID;
// [Manager.WaitReady] waits for the first assignment. On an error everything that was started has been stopped, and the Manager
// cannot be used again.
//
// Errors that time may cure (no server, no JetStream leader yet) are retried until ctx ends, or for the configured StartTimeout
// where it has no deadline; the error is [ErrNoServer] then. [ErrServerTooOld], [ErrJetStreamDisabled], [ErrPermission],
// [ErrForeignBucket], [ErrNoPartitions], [ErrWorkerIDTaken] and [ErrConnectionClosed] are final. ctx bounds the start only: its end
// does not stop a Manager that has started. A start that is given up, because ctx is cancelled, returns its error.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	switch m.phase {
	case made:
		m.phase = starting
	case stopping:
		m.mu.Unlock()
		return ErrStopped
	default:
		m.mu.Unlock()
		return ErrAlreadyStarted
	}
	m.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok && !m.set.WaitForServer {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.set.StartTimeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)() // Stop ends a Start that waits
	m.health.setPhase(types.StateJoining, "start")
	err := m.begin(ctx)
	m.mu.Lock()
	interrupted := m.phase == stopping
	if err == nil && !interrupted {
		m.phase = running
	}
	m.mu.Unlock()
	switch {
	case interrupted && m.js.Conn().IsClosed():
		return ErrConnectionClosed
	case interrupted:
		return ErrStopped
	case err != nil:
		stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), m.set.timing().RequestTimeout)
		defer cancelStop()
		_ = m.Stop(stop) // what it could not end in time is part of a failed start
		return err
	}
	return nil
}

// WaitReady returns when this worker has applied the first commit since it started: it knows what it owns, which may be nothing.
// It returns [ErrStopped] when the Manager stops, and the error of ctx when that ends.
func (m *Manager) WaitReady(ctx context.Context) error {
	select {
	case <-m.ready:
		return nil
	case <-m.ctx.Done():
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("parti: no assignment yet (state %s): %w", m.State(), ctx.Err())
	}
}

// State returns what the Manager is doing.
func (m *Manager) State() State { return m.health.get() }

// WorkerID returns this worker's ID; empty until it has claimed one.
func (m *Manager) WorkerID() string {
	if h := m.holder.Load(); h != nil {
		return h.Worker
	}
	return ""
}

// IsLeader reports whether this worker leads, and may trust that at this moment.
func (m *Manager) IsLeader() bool {
	p := m.getParts()
	if p == nil {
		return false
	}
	_, leading := p.elector.Leading()
	return leading
}

// Assignment returns what the commit applied last gives to this worker. It is a copy, so it costs time in proportion to the
// partitions. Being assigned is not owning; ask [Manager.Owns] before acting on it.
//
// It has no partitions where nothing can be owned: before the first commit, from when the lease has run out until this worker has claimed its ID
// anew and applied a commit, and from [StateStopped] on, so after Stop has returned; the version is that of the last commit all the
// same. While the worker stops, what it gives back is assigned until a commit takes it away.
func (m *Manager) Assignment() Assignment {
	a := m.runtime.Assignment()
	if m.State() == types.StateStopped { // the runtime knows the rest
		a.Partitions = nil
	}
	return a
}

// Owns reports whether this worker runs the partition now: it was started here, has not been cancelled, and the lease holds at this
// moment. It takes constant time and waits for no I/O. The answer can be outdated when it is used; what must not happen twice
// belongs behind the fencing token.
func (m *Manager) Owns(p Partition) bool { return m.runtime.Owns(p.ID()) }

// Epoch returns the fencing token of the partition's present run here, or false where [Manager.Owns] is false.
func (m *Manager) Epoch(p Partition) (int64, bool) { return m.runtime.Epoch(p.ID()) }

// Subscribe returns a channel of state changes, in order, that begins with the present state. It holds 64 changes; a reader that is
// slower misses the oldest, never the last. The function ends the subscription and closes the channel; Stop closes it too.
func (m *Manager) Subscribe() (<-chan StateChange, func()) { return m.changes.subscribe() }

// Status returns everything that a health page shows.
func (m *Manager) Status() Status {
	s := Status{Role: m.set.Role}
	m.health.fill(&s)
	if h := m.holder.Load(); h != nil {
		s.WorkerID, s.Incarnation = h.Worker, h.Incarnation
	}
	if s.LeaseLeft = max(m.lease.Left(), 0); s.State == types.StateStopped {
		s.LeaseLeft = 0
	}
	s.AppliedVersion, _ = m.runtime.Applied()
	s.Parked, s.Drained = int(m.parked.Load()), m.drain.get()
	if calc := m.lead.calculator(); calc != nil {
		lead := calc.Status()
		s.WorkersBehind, s.WorkersDamped, s.WorkersStandingBy = lead.Behind, lead.Damped, lead.StandingBy
		s.StrategyFailures = lead.StrategyFailures
	}
	for _, p := range m.runtime.Partitions() {
		s.count(p)
	}
	if p := m.getParts(); p != nil {
		if info, ok := p.elector.Leader(); ok {
			s.Leader = info.Worker
		}
		_, s.Leading = p.elector.Leading()
		s.Behind = p.follower.Highest() > s.AppliedVersion || p.follower.Unread()
	}
	return s
}

// Partitions returns what every partition does that is assigned to this worker or still runs here, sorted by ID.
func (m *Manager) Partitions() []types.PartitionStatus { return m.runtime.Partitions() }

// setParts hands the parts to whoever stops the Manager from now on. It returns false if that has begun: then nothing must be started.
func (m *Manager) setParts(p *parts) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == stopping {
		return false
	}
	m.parts = p
	return true
}

func (m *Manager) getParts() *parts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parts
}

// observer is how the runtime looks at other workers.
type observer struct{ m *Manager }

// Fresh lists the workers' heartbeats.
func (o observer) Fresh(ctx context.Context, workers []string) (map[string]kv.Entry, error) {
	filters := make([]string, 0, len(workers))
	for _, w := range slices.Compact(slices.Sorted(slices.Values(workers))) { // the server refuses filters that overlap
		filters = append(filters, heartbeat.KeyPrefix+w)
	}
	if len(filters) > fewWorkers {
		filters = []string{heartbeat.KeyPrefix + "*"}
	}
	entries, err := o.m.parts.buckets.Heartbeat.List(ctx, filters...)
	if err != nil {
		return nil, err
	}
	byWorker := make(map[string]kv.Entry, len(entries))
	for key, e := range entries {
		byWorker[key[len(heartbeat.KeyPrefix):]] = e
	}
	return byWorker, nil
}

// Last reads the workers' heartbeats one by one, at the same time.
func (o observer) Last(ctx context.Context, workers []string) map[string]kv.Entry {
	found := make([]*kv.Entry, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			if e, err := o.m.parts.buckets.Heartbeat.Get(ctx, heartbeat.KeyPrefix+w); err == nil {
				found[i] = &e
			}
		})
	}
	all.Wait()
	entries := make(map[string]kv.Entry, len(workers))
	for i, e := range found {
		if e != nil {
			entries[workers[i]] = *e
		}
	}
	return entries
}

// Follow subscribes to the workers' live heartbeats.
func (o observer) Follow(workers []string) error { return o.m.parts.feed.Follow(workers) }
