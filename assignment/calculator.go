package assignment

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// CommitPublisher is what the calculator needs of an AssignmentPublisher. It is called by one goroutine at a time, except for the sweeps.
type CommitPublisher interface {
	// Bootstrap reads the present commit; nil where there is none.
	Bootstrap(ctx context.Context) (*plan.State, error)
	// StartFromScratch gives up a commit that Bootstrap reported as ErrCommitUnreadable: the next state replaces it.
	StartFromScratch() error
	// LastCommit returns the commit that Bootstrap read or Publish made last; nil where there is none.
	LastCommit() *types.AssignmentCommit
	// NextVersion returns a version above all that were ever used, as far as is known here and from seen.
	NextVersion(seen ...int64) int64
	// Publish makes the state the present commit, or changes nothing: types.ErrLeadershipLost, types.ErrCommitConflict, others.
	Publish(ctx context.Context, in PublishInput) (types.AssignmentCommit, error)
	// SweepDue reports whether aliases are to be swept, and SweepAliases does it: what a commit's own sweep, or the leader before, left.
	SweepDue() bool
	SweepAliases(ctx context.Context) error
}

// Calculator is the leader's judgement: it watches the workers and the source, decides when the assignment has to change, has the
// strategy compute it, and has it published. It lives for one term of leadership and only on the leader.
//
// # Who may fail
//
// One loop goroutine owns all state and never waits for anything but events: the source, the strategy, the store and the
// publisher run in goroutines of their own with deadlines. Whatever fails there is retried with backoff, and the last commit stays
// in force meanwhile. Nothing is decided before the first listing of the workers and that of the orders. What does not end is told (OnListing,
// OnOrders, OnSource, OnPublish, OnHold), for the owner to judge whether somebody else should lead. The loop ends by itself only when leadership is lost, when the strategy has failed
// MaxStrategyFailures times in a row, or on a panic; then OnStepDown tells the owner to give up the lead, so that another
// process tries.
//
// # When it acts
//
// The decision is made anew at every event from what is true now: the committed workers against those seen alive. So no change
// is lost that happens while a commit is being made.
//
//   - Leaves, expired keys, returning workers (another incarnation of a committed ID) and changes of the partitions: at once;
//     what comes within 20 ms shares one commit. They ignore windows and the cooldown.
//   - Joins: when membership has been quiet for SettleDelay or ExpectedWorkers are there, at the latest when the window ends, and
//     not before the cooldown since the last commit for joins is over.
//   - Keys that vanished without the server having announced it: after EmergencyGracePeriod; where half of the workers or more
//     vanish, after a second complete listing too.
//   - While the store was out of reach within the last HeartbeatTTL, no death is acted on, and no change of the partitions that nobody has
//     asked for. What was deferred is decided at the moment when that time is over.
//
// # The first commit
//
// Where there is no commit, and no heartbeat shows that there was one, the cold start window is opened. At its end a commit is made
// even if the source is empty: it lists the workers with nothing, so that they are ready, and partitions that appear later are
// assigned at once. A source that fails is not an empty one: nothing is published until it has answered.
type Calculator struct {
	cfg     Config
	sm      *StateMachine
	monitor *WorkerMonitor

	requests   chan *request
	nudge      chan struct{}
	sourceSaid chan struct{}
	desk       *desk                     // nil: there are no orders
	troubleAt  atomic.Pointer[time.Time] // the last NoteTrouble
	reread     atomic.Bool               // see Reread
	strategy   caller[[]int]
	source     caller[sourceList]
	watch      caller[<-chan struct{}]
	status     atomic.Pointer[CalculatorStatus]
	labels     atomic.Pointer[types.LabelState]
	lifecycle  sync.Mutex // guards cancel
	cancel     context.CancelFunc
	done       chan struct{}
}

// CalculatorStatus is a snapshot for a health page.
type CalculatorStatus struct {
	// Version is the present commit's; 0 before the first.
	Version int64
	// Workers is the number of live workers, Legacy of those among them that do not speak the commit protocol, and Held of
	// committed workers that are missing and waited for.
	Workers, Legacy, Held int
	// Partitions is the number of the source's partitions, and Parked of those that nobody owns.
	Partitions, Parked int
	// Behind are the workers that heartbeat and have not applied the present commit within ApplyGracePeriod, sorted.
	Behind []string
	// Damped are the workers that are given nothing for now because they come and go, or were evicted for not following, sorted.
	Damped []string
	// StandingBy are the workers beyond MaxWorkers, sorted.
	StandingBy []string
	// SourceSuspicious: the source shows so much less than before, or a revision below one seen before: it is not believed yet.
	SourceSuspicious bool
	// StrategyFailures counts the failures of the strategy in a row.
	StrategyFailures int
	// HungCalls is the number of calls of the source and the strategy that exceeded their time and have not returned, those of earlier
	// calculators with the same Config.LeftBehind included.
	HungCalls int
	// RecoveryUntil, where not zero: the store was in trouble lately. No death is acted on until then, nor a change of the source that nobody
	// has asked for.
	RecoveryUntil time.Time
	// LastError is the last failure that has not been followed by a success; nil if all is well.
	LastError error
}

// NewCalculator returns a calculator that has not started. Errors wrap types.ErrInvalidConfig.
func NewCalculator(cfg Config) (*Calculator, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	monitor, err := NewWorkerMonitor(MonitorConfig{
		Heartbeats:     cfg.Heartbeats,
		Namespace:      cfg.Namespace,
		HeartbeatTTL:   cfg.HeartbeatTTL,
		RequestTimeout: cfg.RequestTimeout,
		OnListing:      cfg.OnListing,
		Logger:         cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	c := &Calculator{
		cfg:        cfg,
		monitor:    monitor,
		requests:   make(chan *request),
		nudge:      make(chan struct{}, 1),
		sourceSaid: make(chan struct{}, 1),
		done:       make(chan struct{}),
	}
	c.source.left, c.watch.left, c.strategy.left = &cfg.LeftBehind.source, &cfg.LeftBehind.watch, &cfg.LeftBehind.strategy
	if cfg.Control != nil {
		c.desk = newDesk(&c.cfg, func() { poke(c.nudge) })
	}
	c.sm = NewStateMachine(c.stateChanged)
	c.status.Store(&CalculatorStatus{})
	return c, nil
}

func (c *Calculator) stateChanged(from, to types.CalculatorState, reason string) {
	c.cfg.Metrics.CalculatorStateChanged(from, to, reason)
	if c.cfg.OnStateChange != nil {
		c.cfg.OnStateChange(from, to, reason)
	}
}

// Start begins watching and returns at once: what is in the store is read in the background. A calculator lives once.
func (c *Calculator) Start() error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	if c.cancel != nil {
		return types.ErrAlreadyStarted
	}
	if err := c.monitor.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go c.run(ctx)
	return nil
}

// Stop ends the calculator and waits for it until ctx ends: no commit is sent after it has returned nil. It deletes nothing. It is
// idempotent, and does nothing if Start was not called. A source or strategy that ignores the end of its context is left behind.
func (c *Calculator) Stop(ctx context.Context) error {
	c.lifecycle.Lock()
	cancel := c.cancel
	c.lifecycle.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("assignment: calculator still running: %w", ctx.Err())
	}
}

// IsStarted reports whether the calculator is running: started, not stopped, and not ended by itself.
func (c *Calculator) IsStarted() bool {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	if c.cancel == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// request is a call of TriggerRebalance or Refresh that waits for its result.
type request struct {
	ctx    context.Context // of whoever waits
	reason string
	after  int        // lookups of the source begun before the request
	ready  bool       // a lookup begun after it has succeeded
	done   chan error // buffered
}

// TriggerRebalance reads the source anew, believes it however little it says, and has the strategy decide again, ignoring windows, the
// cooldown, and troubles of the store. A source that shows a lower revision than before is read again until it shows a higher one, or for one
// HeartbeatTTL. It returns when the result is committed, or when there is nothing to change, or with the error that prevented it; and
// with ctx's error when that ends first, which does not take the request back.
func (c *Calculator) TriggerRebalance(ctx context.Context) error {
	return c.request(ctx, types.LifecycleManual)
}

// Refresh is TriggerRebalance for somebody who has just changed the source: the commit names the partitions as its reason.
func (c *Calculator) Refresh(ctx context.Context) error {
	return c.request(ctx, types.LifecyclePartitions)
}

func (c *Calculator) request(ctx context.Context, reason string) error {
	if !c.IsStarted() {
		return types.ErrNotLeader
	}
	r := &request{ctx: ctx, reason: reason, done: make(chan error, 1)}
	select {
	case c.requests <- r:
	case <-c.done:
		return types.ErrNotLeader
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-c.done:
		select {
		case err := <-r.done:
			return err
		default:
			return types.ErrNotLeader
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NoteTrouble tells that a write of this process has failed, or that it could not reach the store: for one HeartbeatTTL from now
// no death is acted on, and changes of the source are deferred.
func (c *Calculator) NoteTrouble() {
	now := time.Now()
	c.troubleAt.Store(&now)
	poke(c.nudge)
}

// Monitor returns the leader's view of the workers, for audits.
func (c *Calculator) Monitor() *WorkerMonitor { return c.monitor }

// CurrentVersion returns the version of the present commit; 0 before the first.
func (c *Calculator) CurrentVersion() int64 { return c.status.Load().Version }

// GetState returns what the calculator is doing.
func (c *Calculator) GetState() types.CalculatorState { return c.sm.GetState() }

// GetScalingReason returns why it is not idle, as one of the types.Lifecycle constants; empty when idle.
func (c *Calculator) GetScalingReason() string { return c.sm.GetScalingReason() }

// SubscribeToStateChanges returns a channel of states, the present one first, and a function that ends and closes it. A slow
// reader misses the oldest ones.
func (c *Calculator) SubscribeToStateChanges() (<-chan types.CalculatorState, func()) {
	return c.sm.Subscribe()
}

// Status returns a snapshot, which is not changed any more.
func (c *Calculator) Status() CalculatorStatus {
	s := *c.status.Load()
	s.HungCalls = c.cfg.LeftBehind.count()
	return s
}
