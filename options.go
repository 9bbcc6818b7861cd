package parti

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
)

// Option changes a setting of a Manager. The last one wins.
type Option func(*settings)

// settings is a Config with what only options can give.
type settings struct {
	Config
	handler Handler
	hooks   Hooks
}

// Handler runs one partition until ctx ends, and returns then: that releases the partition to its next owner. One goroutine runs
// it for each owned partition, so it is called concurrently for different partitions and never for one partition twice at a time.
//
// ctx ends when the partition is revoked (context.Cause(ctx) is [ErrRevoked]: finish what is under way, then return) or lost
// ([ErrLeaseExpired]: the partition may run elsewhere within a fraction of the TTL, return at once). A handler that returns
// earlier, with or without an error, or panics, is called again after a wait that doubles from 100 ms to 30 s: owning a
// partition means running it.
type Handler func(ctx context.Context, o Ownership) error

// WithHandler sets what runs for each owned partition.
func WithHandler(h Handler) Option { return func(s *settings) { s.handler = h } }

// WithHooks sets the hooks, all at once.
func WithHooks(h Hooks) Option { return func(s *settings) { s.hooks = h } }

// WithConfig replaces all settings. What is zero gets its default; only the Namespace has to be set.
func WithConfig(c Config) Option { return func(s *settings) { s.Config = c } }

// WithNamespace sets the group's name. Workers of one namespace share its partitions. Default "parti".
func WithNamespace(ns string) Option { return func(s *settings) { s.Namespace = ns } }

// WithWorkerID gives the worker an ID of its own, for example the name of a StatefulSet's pod. Without it, the lowest free one
// of a pool is claimed.
func WithWorkerID(id string) Option { return func(s *settings) { s.WorkerID = id } }

// WithWorkerPool sets the prefix of the IDs that are claimed where none is given. Default "worker".
func WithWorkerPool(prefix string) Option { return func(s *settings) { s.WorkerPool = prefix } }

// WithRole sets whether this process runs partitions, and whether it may lead. Default [RoleWorker]: both. With [RoleCoordinator], which
// takes no handler, no hooks of partitions, no labels and no capacity, IDs are claimed from the pool "coordinator" where no other one
// than the default is set. A coordinator leads with its own source, strategy and settings, which should be those of the workers.
func WithRole(r Role) Option { return func(s *settings) { s.Role = r } }

// WithLabels sets what partitions with a label ask for.
func WithLabels(labels ...string) Option {
	return func(s *settings) { s.Labels = slices.Clone(labels) }
}

// WithCapacity sets how many partitions this worker takes at most, and how much weight: the sum of [Partition.Cost], which is 100 for
// a partition that states none. 0: no such bound. What fits on no worker is parked until there is room.
func WithCapacity(partitions int, weight int64) Option {
	return func(s *settings) { s.Capacity = types.Capacity{Partitions: partitions, Weight: weight} }
}

// WithUnlabeledPolicy sets who gets partitions without a label. Default types.UnlabeledDedicated: workers without labels, or all while
// there is none. The leader's setting counts.
func WithUnlabeledPolicy(p types.UnlabeledPolicy) Option {
	return func(s *settings) { s.UnlabeledPolicy = p }
}

// WithLabelSpillGrace sets how long partitions wait, parked, for a worker that carries their label before they are placed like those
// without one; 0: not at all. Default types.NeverSpill: for ever. The leader's setting counts.
func WithLabelSpillGrace(d time.Duration) Option {
	return func(s *settings) { s.LabelSpillGrace = noneIfZero(d) }
}

// noneIfZero is for options of which a reader takes 0 for none. In a [Config] zero is the default, and none is negative.
func noneIfZero(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// WithHeartbeat sets how often the worker shows that it lives, and how long the server believes it. Default 3 s and 15 s.
func WithHeartbeat(interval, ttl time.Duration) Option {
	return func(s *settings) { s.HeartbeatInterval, s.HeartbeatTTL = interval, ttl }
}

// WithLeaderLease sets how long the group waits for a silent leader, in whole seconds. Default 10 s.
func WithLeaderLease(d time.Duration) Option { return func(s *settings) { s.LeaderLease = d } }

// WithWindows sets the upper bounds of the waits for further joins, before the first commit and later, and the quiet time that ends
// them early. Default 30 s, 10 s and 2 s; 0: no wait.
func WithWindows(coldStart, scale, settle time.Duration) Option {
	return func(s *settings) {
		s.ColdStartWindow, s.ScaleWindow, s.SettleDelay = noneIfZero(coldStart), noneIfZero(scale), noneIfZero(settle)
	}
}

// WithExpectedWorkers ends the wait for further joins when n workers are there. Default 0: not known.
func WithExpectedWorkers(n int) Option { return func(s *settings) { s.ExpectedWorkers = n } }

// WithMaxWorkers limits how many workers are given partitions. Those beyond stand by: they follow, and take over at once when one leaves
// or dies. Who has partitions keeps them; among the others the order is that of their IDs, whatever their labels are. A worker within its
// restart grace counts, one that is drained does not. Where the limit is lowered, the workers with the highest IDs give up what they
// have. Default 0: no limit. The leader's setting counts.
func WithMaxWorkers(n int) Option { return func(s *settings) { s.MaxWorkers = n } }

// WithCooldown sets the shortest time between two commits made for joins. Default 10 s; 0: none.
func WithCooldown(d time.Duration) Option { return func(s *settings) { s.Cooldown = noneIfZero(d) } }

// WithDampingPeriod sets how long a worker that comes and goes is given nothing; it doubles with each time, up to ten times as long.
// Default a minute; 0: no damping. It comes and goes who dies within the period after others gave up partitions for it, or leaves in good
// order within it twice in a row. Restarts, drains, and a change of the leader do not count. Until the period is over the worker is ready
// and has nothing, see Status.WorkersDamped. A stuck worker that was evicted is given nothing for at least a minute, whatever is set here.
func WithDampingPeriod(d time.Duration) Option {
	return func(s *settings) { s.DampingPeriod = noneIfZero(d) }
}

// WithOwnership chooses what happens when the store cannot be reached for longer than the lease. Default [Exclusive].
func WithOwnership(m OwnershipMode) Option { return func(s *settings) { s.Ownership = m } }

// WithDrainTimeout sets after how long a handler that ignores the end of its context is reported. Default 30 s.
func WithDrainTimeout(d time.Duration) Option { return func(s *settings) { s.DrainTimeout = d } }

// WithHandoffTimeout sets how long a new owner waits for one that neither releases nor dies; negative: for ever. Default 45 s, also
// where it is 0: without any wait two workers would run a partition at each handoff.
func WithHandoffTimeout(d time.Duration) Option { return func(s *settings) { s.HandoffTimeout = d } }

// WithDegradedAlerts sets after how long in degraded mode the alerts of the levels warn, error and critical are raised.
func WithDegradedAlerts(warn, err, critical time.Duration) Option {
	return func(s *settings) { s.DegradedWarn, s.DegradedError, s.DegradedCritical = warn, err, critical }
}

// WithReplicas sets the replicas of the buckets, where this worker creates them. Default 1; use 3 in a cluster.
func WithReplicas(n int) Option { return func(s *settings) { s.Replicas = n } }

// WithStorage sets the storage of the buckets. Default jetstream.FileStorage.
func WithStorage(t jetstream.StorageType) Option { return func(s *settings) { s.Storage = t } }

// WithWaitForServer makes Start wait for NATS as long as its context allows, rather than for StartTimeout.
func WithWaitForServer() Option { return func(s *settings) { s.WaitForServer = true } }

// WithStartTimeout sets how long Start tries where its context has no deadline. Default 30 s.
func WithStartTimeout(d time.Duration) Option { return func(s *settings) { s.StartTimeout = d } }

// WithLogger sets where the Manager logs. Default: nowhere.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.Logger = l } }

// WithMetrics sets who receives measurements. Embed types.NopMetrics to implement only some.
func WithMetrics(m types.Metrics) Option { return func(s *settings) { s.Metrics = m } }

// StopOption changes what [Manager.Stop] does.
type StopOption func(*farewell)

// farewell is what a Stop was asked for.
type farewell struct {
	graceSet bool
	grace    time.Duration
}

// WithRestartGrace is for a worker that is about to be started again under the same ID: a StatefulSet's pod, or any worker of a pool, where
// the next one takes the ID that waits. The group keeps its partitions in place for d, from 1 ms to [MaxRestartGrace], and nobody
// runs them meanwhile. If the ID is back within d, nothing moves: the new process gets the same partitions under new epochs. If it is not,
// they go to others when d is over. d is counted by the leader's clock from when it hears of the stop.
//
// Choose d above the time that a restart takes, and below what your partitions can wait.
func WithRestartGrace(d time.Duration) StopOption {
	return func(f *farewell) { f.grace, f.graceSet = d, true }
}

// MaxRestartGrace is the longest restart grace.
const MaxRestartGrace = types.MaxRestartGrace

// restartGrace returns the grace that was asked for; 0 and an error where it cannot be given.
func restartGrace(opts []StopOption) (time.Duration, error) {
	var f farewell
	for _, o := range opts {
		if o == nil {
			return 0, fmt.Errorf("%w: an option of Stop is nil; stopped without a restart grace", ErrInvalidConfig)
		}
		o(&f)
	}
	if f.graceSet && (f.grace < time.Millisecond || f.grace > MaxRestartGrace) {
		return 0, fmt.Errorf("%w: the restart grace is %v: use 1ms to %v, e.g. the time a restart takes and half of that; stopped without one",
			ErrInvalidConfig, f.grace, MaxRestartGrace)
	}
	return f.grace, nil
}
