package grouptest

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/types"
)

// options say what a group is like.
type options struct {
	partitions []types.Partition
	strategy   types.AssignmentStrategy
	manager    []parti.Option
	bubble     []natstest.Option
	ignore     []checker.Rule
	spill      bool
	drain      func(partition string) time.Duration
	overlaps   bool
}

// Option changes a group before it begins.
type Option func(*options)

// Partitions gives the group n partitions p-0000, p-0001, …
func Partitions(n int) Option {
	return func(o *options) { o.partitions = Numbered(n) }
}

// PartitionList gives the group these partitions.
func PartitionList(ps ...types.Partition) Option {
	return func(o *options) { o.partitions = ps }
}

// Strategy replaces the sticky one.
func Strategy(s types.AssignmentStrategy) Option { return func(o *options) { o.strategy = s } }

// Manager adds options to those of every worker.
func Manager(opts ...parti.Option) Option {
	return func(o *options) { o.manager = append(o.manager, opts...) }
}

// Server adds options to those of the server or bubble.
func Server(opts ...natstest.Option) Option {
	return func(o *options) { o.bubble = append(o.bubble, opts...) }
}

// Ignoring leaves out rules of the checker that the scenario breaks on purpose.
func Ignoring(rules ...checker.Rule) Option {
	return func(o *options) { o.ignore = append(o.ignore, rules...) }
}

// Spilling lets labels that nobody carries bind nobody after the grace.
func Spilling(grace time.Duration) Option {
	return func(o *options) {
		o.spill = true
		o.manager = append(o.manager, parti.WithLabelSpillGrace(grace))
	}
}

// Drain makes handlers take some time to return after their context has ended.
func Drain(d func(partition string) time.Duration) Option { return func(o *options) { o.drain = d } }

// ToleratesOverlaps is for scenarios in which a handler ignores the end of its lease, or a HandoffTimeout passes. The scenario
// itself says which overlaps it expects; that epochs grow is checked all the same.
func ToleratesOverlaps() Option { return func(o *options) { o.overlaps = true } }

// Numbered returns n partitions p-0000, p-0001, …
func Numbered(n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("p-%04d", i))
	}
	return ps
}

// FileStorage makes the buckets survive a restart of the server.
func FileStorage() Option { return Manager(parti.WithStorage(jetstream.FileStorage)) }

// Logged makes every worker log to the test's output, for debugging.
func Logged() Option {
	return Manager(parti.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))))
}

func newOptions(opts []Option) options {
	o := options{strategy: strategy.Sticky(), drain: func(string) time.Duration { return 0 }}
	Partitions(20)(&o)
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
