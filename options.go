package parti

import (
	"context"
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

// WithConfig replaces all settings; begin with [DefaultConfig].
func WithConfig(c Config) Option { return func(s *settings) { s.Config = c } }

// WithNamespace sets the group's name. Workers of one namespace share its partitions. Default "parti".
func WithNamespace(ns string) Option { return func(s *settings) { s.Namespace = ns } }

// WithWorkerID gives the worker an ID of its own, for example the name of a StatefulSet's pod. Without it, the lowest free one
// of a pool is claimed.
func WithWorkerID(id string) Option { return func(s *settings) { s.WorkerID = id } }

// WithWorkerPool sets the prefix of the IDs that are claimed where none is given. Default "worker".
func WithWorkerPool(prefix string) Option { return func(s *settings) { s.WorkerPool = prefix } }

// WithLabels sets what partitions with a label ask for.
func WithLabels(labels ...string) Option {
	return func(s *settings) { s.Labels = slices.Clone(labels) }
}

// WithHeartbeat sets how often the worker shows that it lives, and how long the server believes it. Default 3 s and 15 s.
func WithHeartbeat(interval, ttl time.Duration) Option {
	return func(s *settings) { s.HeartbeatInterval, s.HeartbeatTTL = interval, ttl }
}

// WithLeaderLease sets how long the group waits for a silent leader, in whole seconds. Default 10 s.
func WithLeaderLease(d time.Duration) Option { return func(s *settings) { s.LeaderLease = d } }

// WithWindows sets the upper bounds of the waits for further joins, before the first commit and later, and the quiet time that ends
// them early. Default 30 s, 10 s and 2 s.
func WithWindows(coldStart, scale, settle time.Duration) Option {
	return func(s *settings) { s.ColdStartWindow, s.ScaleWindow, s.SettleDelay = coldStart, scale, settle }
}

// WithExpectedWorkers ends the wait for further joins when n workers are there. Default 0: not known.
func WithExpectedWorkers(n int) Option { return func(s *settings) { s.ExpectedWorkers = n } }

// WithCooldown sets the shortest time between two commits made for joins. Default 10 s.
func WithCooldown(d time.Duration) Option { return func(s *settings) { s.Cooldown = d } }

// WithOwnership chooses what happens when the store cannot be reached for longer than the lease. Default [Exclusive].
func WithOwnership(m OwnershipMode) Option { return func(s *settings) { s.Ownership = m } }

// WithDrainTimeout sets after how long a handler that ignores the end of its context is reported. Default 30 s.
func WithDrainTimeout(d time.Duration) Option { return func(s *settings) { s.DrainTimeout = d } }

// WithHandoffTimeout sets how long a new owner waits for one that neither releases nor dies; negative: for ever. Default 45 s.
func WithHandoffTimeout(d time.Duration) Option { return func(s *settings) { s.HandoffTimeout = d } }

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
