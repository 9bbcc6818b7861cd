package parti

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/heartbeat"
	"github.com/partigo/parti/types"
)

// OwnershipMode says what a worker does when it can no longer prove to the group that it is alive.
type OwnershipMode uint8

const (
	// Exclusive, the default: it cancels its partitions before anybody else can start them. An outage of the store that lasts
	// longer than the lease stops all work.
	Exclusive OwnershipMode = iota
	// Available: it goes on with what it has. Work does not stop during an outage of the store, and partitions may run twice.
	Available
)

// Config holds every setting of a Manager. One rule holds for all: zero means the default, which [DefaultConfig] explains; only
// Namespace has to be set. A negative duration means none, where a group can do without: no window, no cooldown, no damping, no grace.
// Without a HandoffTimeout there is no end to the wait. All workers of a namespace must agree on HeartbeatTTL and should agree on the rest.
type Config struct {
	// Namespace isolates a group: its buckets are <Namespace>-control and <Namespace>-heartbeat.
	Namespace string
	// WorkerID is this worker's ID. Empty: the lowest free ID <WorkerPool>-0, <WorkerPool>-1, … is claimed.
	WorkerID   string
	WorkerPool string
	// Role says whether this process runs partitions, and whether it may lead.
	Role types.Role
	// Labels are what partitions with a label ask for.
	Labels []string
	// Capacity is what this worker takes at most. What fits nowhere is parked.
	Capacity types.Capacity
	// UnlabeledPolicy says who gets partitions without a label: workers without labels, or (types.UnlabeledShared) all.
	UnlabeledPolicy types.UnlabeledPolicy
	// LabelSpillGrace is how long nobody may have carried a label before partitions with it are placed like those without one; until
	// then they are parked. Negative: at once; types.NeverSpill, the default: never.
	LabelSpillGrace time.Duration

	// HeartbeatInterval is how often a worker shows that it lives; HeartbeatTTL is how long the server believes it. A crash is
	// repaired within HeartbeatTTL and half a second.
	HeartbeatInterval time.Duration
	HeartbeatTTL      time.Duration
	// LeaderLease is how long the group waits for a silent leader; whole seconds.
	LeaderLease time.Duration

	// ColdStartWindow and ScaleWindow are upper bounds of the wait for further joins, before the first commit and before any
	// later one. They end as soon as nobody has joined for SettleDelay, or ExpectedWorkers (where not 0) are there. Negative: no wait; a
	// negative SettleDelay ends both windows as soon as they begin.
	ColdStartWindow time.Duration
	ScaleWindow     time.Duration
	SettleDelay     time.Duration
	ExpectedWorkers int
	// MaxWorkers, where not 0, is how many workers are given partitions at most. Those beyond stand by.
	MaxWorkers int
	// Cooldown is the shortest time between two commits made for joins. Negative: none.
	Cooldown time.Duration
	// DampingPeriod is how long a worker that died soon after it was given others' partitions is given none when it is back. It doubles
	// each time that happens, up to ten times as long. Negative: no damping.
	DampingPeriod time.Duration

	// Ownership chooses between Exclusive and Available.
	Ownership OwnershipMode
	// DrainTimeout is after how long a handler that ignores the end of its context is reported. It is waited for beyond that.
	DrainTimeout time.Duration
	// HandoffTimeout is how long a new owner waits for an earlier one that neither releases nor dies, before it starts
	// regardless, under its higher epoch. Negative: for ever.
	HandoffTimeout time.Duration

	// DegradedWarn, DegradedError and DegradedCritical are after how long in degraded mode an alert of that level is raised.
	DegradedWarn     time.Duration
	DegradedError    time.Duration
	DegradedCritical time.Duration

	// Replicas and Storage of the buckets, used when they are created.
	Replicas int
	Storage  jetstream.StorageType

	// WaitForServer makes Start wait for NATS until its context ends; otherwise it gives up after StartTimeout.
	WaitForServer bool
	StartTimeout  time.Duration

	Logger  *slog.Logger
	Metrics types.Metrics
}

// DefaultConfig returns the settings that NewManager begins with.
func DefaultConfig() Config {
	return Config{
		Namespace:  "parti",
		WorkerPool: "worker",
		Role:       RoleWorker,
		// Replicated writes stop for 4 to 8 s when a stream's leader is lost. The lease (15 s less the margin of 15/8 s) less an
		// interval outlasts that, so the loss of a NATS node fences nobody.
		HeartbeatInterval: 3 * time.Second,
		HeartbeatTTL:      15 * time.Second,
		LeaderLease:       10 * time.Second,
		ColdStartWindow:   30 * time.Second,
		ScaleWindow:       10 * time.Second,
		SettleDelay:       2 * time.Second,
		Cooldown:          10 * time.Second,
		DampingPeriod:     time.Minute,
		UnlabeledPolicy:   types.UnlabeledDedicated,
		// A label is a demand: what nobody can meet is better shown as parked than run where it may fail.
		LabelSpillGrace:  types.NeverSpill,
		DrainTimeout:     30 * time.Second,
		HandoffTimeout:   45 * time.Second,
		DegradedWarn:     15 * time.Second,
		DegradedError:    time.Minute,
		DegradedCritical: 5 * time.Minute,
		Replicas:         1,
		Storage:          jetstream.FileStorage,
		StartTimeout:     30 * time.Second,
		Logger:           slog.New(slog.DiscardHandler),
		Metrics:          types.NopMetrics{},
	}
}

// Config returns the settings in force, defaults filled in. It is a copy.
func (m *Manager) Config() Config {
	c := m.set.Config
	c.Labels = slices.Clone(c.Labels)
	return c
}

// timing returns the durations of the worker's lease.
func (c *Config) timing() heartbeat.Timing {
	return heartbeat.DefaultTiming(c.HeartbeatTTL, c.HeartbeatInterval)
}

// setDefaults gives everything that is zero its default. A Namespace has none here: one that was forgotten would join another group.
func (c *Config) setDefaults() {
	d := DefaultConfig()
	for _, f := range []struct{ have, def *time.Duration }{
		{&c.HeartbeatInterval, &d.HeartbeatInterval}, {&c.HeartbeatTTL, &d.HeartbeatTTL}, {&c.LeaderLease, &d.LeaderLease},
		{&c.ColdStartWindow, &d.ColdStartWindow}, {&c.ScaleWindow, &d.ScaleWindow}, {&c.SettleDelay, &d.SettleDelay},
		{&c.Cooldown, &d.Cooldown}, {&c.DampingPeriod, &d.DampingPeriod}, {&c.LabelSpillGrace, &d.LabelSpillGrace},
		{&c.DrainTimeout, &d.DrainTimeout}, {&c.HandoffTimeout, &d.HandoffTimeout},
		{&c.StartTimeout, &d.StartTimeout}, {&c.DegradedWarn, &d.DegradedWarn}, {&c.DegradedError, &d.DegradedError},
		{&c.DegradedCritical, &d.DegradedCritical},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	if c.Role == "" {
		c.Role = d.Role
	}
	if c.WorkerPool == "" {
		c.WorkerPool = d.WorkerPool
	}
	if c.Role == RoleCoordinator && c.WorkerPool == d.WorkerPool {
		c.WorkerPool = coordinatorPool // an ID that says what it is, and no gap in the workers' numbers
	}
	if c.UnlabeledPolicy == "" {
		c.UnlabeledPolicy = d.UnlabeledPolicy
	}
	if c.Replicas == 0 {
		c.Replicas = d.Replicas
	}
	if c.Logger == nil {
		c.Logger = d.Logger
	}
	if c.Metrics == nil {
		c.Metrics = d.Metrics
	}
	c.Labels = slices.Compact(slices.Sorted(slices.Values(c.Labels)))
}

// Validate reports everything that is wrong, joined; each error wraps [ErrInvalidConfig], [ErrInvalidWorkerID] or
// [ErrInvalidLabel] and says what to write instead. What is zero is taken for its default.
func (c *Config) Validate() error {
	full := *c
	full.setDefaults()
	c = &full
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidConfig}, args...)...))
	}
	if fault := nameFault(c.Namespace, 32); fault != "" {
		bad("Namespace %q %s; for example \"orders\"", c.Namespace, fault)
	}
	if c.WorkerID != "" {
		if err := types.ValidateWorkerID(c.WorkerID); err != nil {
			errs = append(errs, err)
		}
	} else if fault := nameFault(c.WorkerPool, 48); fault != "" {
		bad("WorkerPool %q %s; for example \"worker\"", c.WorkerPool, fault)
	} else if err := types.ValidateWorkerID(c.WorkerPool + "-0"); err != nil {
		errs = append(errs, err)
	}
	for _, l := range c.Labels {
		if err := types.ValidateLabel(l); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.timing().Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.LeaderLease < time.Second || c.LeaderLease%time.Second != 0 {
		bad("LeaderLease is %v: the server counts whole seconds, use e.g. %v", c.LeaderLease, max(c.LeaderLease.Truncate(time.Second), time.Second))
	}
	positive := func(name string, d time.Duration) {
		if d < 0 {
			bad("%s is %v: use a positive duration, or 0 for the default", name, d)
		}
	}
	positive("DrainTimeout", c.DrainTimeout)
	positive("StartTimeout", c.StartTimeout)
	if c.DegradedWarn < 0 || c.DegradedError < c.DegradedWarn || c.DegradedCritical < c.DegradedError {
		bad("DegradedWarn, DegradedError and DegradedCritical are %v, %v and %v: use positive durations that do not fall",
			c.DegradedWarn, c.DegradedError, c.DegradedCritical)
	}
	if c.Capacity.Partitions < 0 || c.Capacity.Weight < 0 {
		bad("Capacity is %+v: use positive bounds, or 0 for none", c.Capacity)
	}
	if c.UnlabeledPolicy != types.UnlabeledDedicated && c.UnlabeledPolicy != types.UnlabeledShared {
		bad("UnlabeledPolicy is %q: use types.UnlabeledDedicated or types.UnlabeledShared", c.UnlabeledPolicy)
	}
	if c.ExpectedWorkers < 0 {
		bad("ExpectedWorkers is %d: use 0 when the number is not known", c.ExpectedWorkers)
	}
	if c.MaxWorkers < 0 {
		bad("MaxWorkers is %d: use a positive number, or 0 for no limit", c.MaxWorkers)
	}
	if c.Ownership > Available {
		bad("Ownership is %d: use parti.Exclusive or parti.Available", c.Ownership)
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		bad("Replicas is %d: NATS takes 1 to 5; use 3 in a cluster", c.Replicas)
	}
	if c.Storage != jetstream.FileStorage && c.Storage != jetstream.MemoryStorage {
		bad("Storage is %d: use jetstream.FileStorage or jetstream.MemoryStorage", c.Storage)
	}
	return errors.Join(errs...)
}

// nameFault says why s cannot be part of a bucket's name and of a subject token.
func nameFault(s string, most int) string {
	if s == "" || len(s) > most {
		return fmt.Sprintf("must have 1 to %d characters", most)
	}
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !ok(r) }) {
		return "may have letters, digits, '-' and '_' only"
	}
	return ""
}
