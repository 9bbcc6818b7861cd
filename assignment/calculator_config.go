package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Metrics receives what a calculator measures.
type Metrics interface {
	types.CalculatorMetrics
	types.AuditMetrics
}

// Config says what a Calculator works with. A duration that is 0 gets its default; a negative one means none.
type Config struct {
	// Self is the leader itself. A first listing without its heartbeat is older than its election and not believed.
	Self types.Holder
	// Namespace and Heartbeats name what is watched.
	Namespace  string
	Heartbeats *kv.Store
	// Control is the bucket in which operators leave orders; nil: there are none.
	Control   *kv.Store
	Publisher CommitPublisher
	Source    types.PartitionSource
	Strategy  types.AssignmentStrategy

	// HeartbeatTTL is the age at which the server ends heartbeats.
	HeartbeatTTL time.Duration
	// RequestTimeout bounds one exchange with the server. Default: a few heartbeats fit, min(2 s, TTL/8).
	RequestTimeout time.Duration

	// ColdStartWindow and PlannedScaleWindow bound how long joins are collected: without a commit (30 s), and with one (10 s).
	ColdStartWindow    time.Duration
	PlannedScaleWindow time.Duration
	// SettleDelay ends a window early when nobody has come or gone for so long (2 s).
	SettleDelay time.Duration
	// ExpectedWorkers, where not 0, ends a window at once when so many are there.
	ExpectedWorkers int
	// MaxWorkers, where not 0, is how many workers are given partitions at most. The others stand by.
	MaxWorkers int
	// Cooldown is the least time between two commits for joins (10 s).
	Cooldown time.Duration
	// EmergencyGracePeriod is how long a worker has to be missing of whom the server has not said that it expired (TTL/2).
	EmergencyGracePeriod time.Duration

	// UnlabeledPolicy says who gets partitions without a label (types.UnlabeledDedicated).
	UnlabeledPolicy types.UnlabeledPolicy
	// LabelSpillGrace is how long nobody may have carried a label before partitions with it are placed like those without one; until
	// then they are parked. 0 means at once; types.NeverSpill, and negative: never.
	LabelSpillGrace time.Duration
	// DampingPeriod is how long a worker that died soon after others gave up partitions for it is given none when it is back (60 s). It
	// doubles each time, up to ten times as long. Leaving in good order counts when it happens twice in a row.
	DampingPeriod time.Duration

	// ApplyGracePeriod is how long a worker may be behind the commit before it is reported (2 × HeartbeatTTL).
	ApplyGracePeriod time.Duration
	// ExtendedApplyGracePeriod is how long a worker that heartbeats may be behind before its key is deleted, so that it ends and claims
	// anew: max(5 × HeartbeatTTL, HandoffTimeout + HeartbeatTTL).
	ExtendedApplyGracePeriod time.Duration
	// AuditInterval is the time between two looks at that (HeartbeatTTL).
	AuditInterval time.Duration
	// HandoffTimeout is how long new owners wait for earlier ones, where that is bounded.
	HandoffTimeout time.Duration
	// LeaderCheck proves, by a write, that this process still leads. nil: nobody is evicted, only reported.
	LeaderCheck func(ctx context.Context) error

	// SourceInterval is how often the source is looked at without being asked to (30 s).
	SourceInterval time.Duration
	// SourceTimeout and StrategyTimeout bound one call (10 s, 5 s). A call that exceeds it is abandoned, and no other one is
	// made until it has returned.
	SourceTimeout   time.Duration
	StrategyTimeout time.Duration
	// LeftBehind, where a process makes several calculators one after the other, bounds the calls that it leaves behind: while 4 of a kind
	// have not returned, each other one fails at once. Default: one of its own.
	LeftBehind *LeftBehind
	// MaxStrategyFailures is how many failures of the strategy in a row this process leads through (5).
	MaxStrategyFailures int
	// PublishTimeout bounds the making of one commit, payloads included (30 s).
	PublishTimeout time.Duration

	// DrainPatience is how long a drain that goes one by one waits for a partition that its worker does not return (1 min).
	DrainPatience time.Duration

	// SeenVersion is the highest version that this process has ever seen anywhere.
	SeenVersion int64
	// LastTrouble is when this process last failed to write or to reach the store, before the calculator was made.
	LastTrouble time.Time

	// Metrics and Logger may be nil.
	Metrics Metrics
	Logger  *slog.Logger
	// OnStateChange, if set, is called by the loop after each transition, in order. It must return at once.
	OnStateChange func(from, to types.CalculatorState, reason string)
	// OnRebalanceStarted, if set, is called by the loop when it begins to make a commit, with the reason and the version in force, and
	// OnRebalanceEnded when that has succeeded, was not needed, or has failed. A calculator that is stopped in between tells no end. They
	// must return at once.
	OnRebalanceStarted func(reason string, version int64)
	OnRebalanceEnded   func(RebalanceResult)
	// OnListing, if set, is called after each listing of the workers, from one goroutine: with nil for a complete one, or with the error, how
	// many have failed in a row, and since when. It must return at once.
	OnListing func(err error, failed int, since time.Time)
	// OnSource, if set, is called after each look at the source in the same way: with nil where it answered, believed or not. It is called by the
	// loop, and must return at once.
	OnSource func(err error, failed int, since time.Time)
	// OnPublish, if set, is called in the same way after each attempt at a commit, reading the last one included: with nil where a commit was
	// made, or where after failures none is needed any more. It is called by the loop, and must return at once.
	OnPublish func(err error, failed int, since time.Time)
	// OnOrders, if set, is called in the same way after each listing of the orders, up to the first that succeeds, before which nothing is decided.
	// It is called from one goroutine, and must return at once.
	OnOrders func(err error, failed int, since time.Time)
	// OnHold, if set, is called by the loop with each look at the workers: what is held because of troubles with the store. It must return at once.
	OnHold func(Hold)
	// OnTrouble, if set, is called with each new failure of the source, of the strategy, or of a commit. It must not block.
	OnTrouble func(error)
	// OnStepDown, if set, is called once when the calculator has ended by itself, with the reason: the lead must be given up. It
	// runs after everything has ended, and may call Stop.
	OnStepDown func(error)
}

// RebalanceResult is what came of making a commit.
type RebalanceResult struct {
	Reason string
	// Version is in force afterwards; where nothing had to change, or Err is set, it is the one before.
	Version int64
	// Moved counts the partitions that went from one worker to another.
	Moved int
	Took  time.Duration
	Err   error
}

func (cfg *Config) setDefaults() {
	set := func(d *time.Duration, def time.Duration) {
		switch {
		case *d == 0:
			*d = def
		case *d < 0:
			*d = 0
		}
	}
	set(&cfg.RequestTimeout, min(2*time.Second, cfg.HeartbeatTTL/8))
	set(&cfg.ColdStartWindow, 30*time.Second)
	set(&cfg.PlannedScaleWindow, 10*time.Second)
	set(&cfg.SettleDelay, 2*time.Second)
	set(&cfg.Cooldown, 10*time.Second)
	set(&cfg.EmergencyGracePeriod, cfg.HeartbeatTTL/2)
	set(&cfg.DampingPeriod, time.Minute)
	set(&cfg.ApplyGracePeriod, 2*cfg.HeartbeatTTL)
	set(&cfg.ExtendedApplyGracePeriod, cfg.patience())
	set(&cfg.AuditInterval, cfg.HeartbeatTTL)
	if cfg.UnlabeledPolicy == "" {
		cfg.UnlabeledPolicy = types.UnlabeledDedicated
	}
	set(&cfg.SourceInterval, 30*time.Second)
	set(&cfg.SourceTimeout, 10*time.Second)
	set(&cfg.StrategyTimeout, 5*time.Second)
	set(&cfg.PublishTimeout, 30*time.Second)
	set(&cfg.DrainPatience, time.Minute)
	if cfg.MaxStrategyFailures == 0 {
		cfg.MaxStrategyFailures = 5
	}
	if cfg.LeftBehind == nil {
		cfg.LeftBehind = new(LeftBehind)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = types.NopMetrics{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
}

// patience is how long a worker may be stuck: nobody is evicted for whom a new owner still waits.
func (cfg *Config) patience() time.Duration {
	return max(5*cfg.HeartbeatTTL, cfg.HandoffTimeout+cfg.HeartbeatTTL)
}

func (cfg *Config) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: assignment.Config: %s", types.ErrInvalidConfig, what))
		}
	}
	need(cfg.Namespace != "", "Namespace is empty")
	need(cfg.Heartbeats != nil, "Heartbeats is nil")
	need(cfg.Publisher != nil, "Publisher is nil")
	need(cfg.Source != nil, "Source is nil")
	need(cfg.Strategy != nil, "Strategy is nil")
	need(cfg.HeartbeatTTL > 0, "HeartbeatTTL must be positive")
	need(cfg.SourceInterval > 0 && cfg.SourceTimeout > 0 && cfg.StrategyTimeout > 0 && cfg.PublishTimeout > 0 && cfg.RequestTimeout > 0,
		"SourceInterval and the timeouts must be positive, or 0 for their defaults")
	need(cfg.UnlabeledPolicy == types.UnlabeledDedicated || cfg.UnlabeledPolicy == types.UnlabeledShared, "UnlabeledPolicy must be dedicated or shared")
	need(cfg.AuditInterval > 0, "AuditInterval must be positive, or 0 for its default")
	need(cfg.MaxStrategyFailures > 0, "MaxStrategyFailures must be positive, or 0 for its default")
	need(cfg.MaxWorkers >= 0, "MaxWorkers must not be negative")
	need(cfg.ExpectedWorkers >= 0, "ExpectedWorkers must not be negative")
	return errors.Join(errs...)
}
