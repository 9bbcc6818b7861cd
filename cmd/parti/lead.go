package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/groupspec"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// leading says how groups are led, where the command line knows better than the groups' own specs.
type leading struct {
	partitions int    // numbered "0" to "n-1"; 0: as the spec says
	kv         string // bucket/key; empty: as the spec says
	strategy   string // a name; empty: as the spec says
	maxWorkers int    // negative: as the spec says
	id         string
	log        *slog.Logger
}

// strategies are those that can be named.
var strategies = map[string]types.AssignmentStrategy{
	"sticky": strategy.Sticky(), "round-robin": strategy.RoundRobin(),
	"consistent-hash": strategy.ConsistentHash(), "weighted-consistent-hash": strategy.WeightedConsistentHash(),
}

func cannot(ns, format string, args ...any) error {
	return fmt.Errorf("group %q %w: "+format, append([]any{ns, errCannotLead}, args...)...)
}

// readSpec returns what the workers of a group have left; nil: nothing.
func readSpec(ctx context.Context, control *kv.Store) (*groupspec.Spec, error) {
	e, err := control.Get(ctx, groupspec.Key)
	switch {
	case errors.Is(err, kv.ErrNotFound), err == nil && e.Absent():
		return nil, nil
	case err != nil:
		return nil, err
	}
	s, err := groupspec.Decode(e.Value)
	return &s, err
}

// manager returns a coordinator for the group, not started, and the spec that it was made of. Errors wrap errCannotLead where no waiting
// but for the group's workers helps.
func (l *leading) manager(ctx context.Context, js jetstream.JetStream, ns string) (*parti.Manager, *groupspec.Spec, error) {
	buckets, err := open(ctx, js, ns)
	if err != nil {
		return nil, nil, err
	}
	spec, err := readSpec(ctx, buckets.Control)
	if err != nil {
		return nil, nil, err
	}
	m, err := l.made(ctx, js, ns, buckets, spec)
	return m, spec, err
}

// made makes a coordinator of what the group's workers have left.
func (l *leading) made(ctx context.Context, js jetstream.JetStream, ns string, buckets kv.Buckets, spec *groupspec.Spec) (*parti.Manager, error) {
	from, err := l.source(ctx, js, ns, buckets.Control, spec)
	if err != nil {
		return nil, err
	}
	place, err := l.placement(ns, spec)
	if err != nil {
		return nil, err
	}
	m, err := parti.NewManager(js, from, place, parti.WithConfig(l.config(ns, buckets, spec)))
	if err != nil {
		return nil, cannot(ns, "%w", err)
	}
	return m, nil
}

func open(ctx context.Context, js jetstream.JetStream, ns string) (kv.Buckets, error) {
	buckets, err := kv.OpenBuckets(ctx, js, ns)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %q has no buckets: it exists when its first worker has started", parti.ErrNoGroup, ns)
	}
	return buckets, err
}

// source returns where the partitions of a group come from.
func (l *leading) source(ctx context.Context, js jetstream.JetStream, ns string, control *kv.Store, spec *groupspec.Spec) (types.PartitionSource, error) {
	const help = "pass -partitions N or -source-kv bucket/key if that is what its workers use"
	if l.partitions > 0 {
		return source.Static(groupspec.Numbers(l.partitions)...), nil
	}
	if bucket, key, ok := strings.Cut(l.kv, "/"); ok {
		return source.NewKV(js, bucket, key, source.WithLogger(l.log)), nil
	}
	if spec == nil {
		return nil, cannot(ns, "%w; workers do when they begin to lead, and parti.RoleFollower when they start; %s", errUntold, help)
	}
	switch from := spec.Source; from.Kind {
	case groupspec.Numbered:
		return source.Static(groupspec.Numbers(from.Count)...), nil
	case groupspec.KV:
		return source.NewKV(js, from.Bucket, from.Key, source.WithLogger(l.log)), nil
	case groupspec.Static:
		if len(from.Partitions) > 0 {
			return source.Static(from.Partitions...), nil
		}
		list, err := committed(ctx, control)
		if err != nil {
			return nil, err
		}
		if len(list) != from.Count {
			return nil, cannot(ns, "its list of %d partitions is too large to be stored, and its last commit has %d: have one of its workers lead "+
				"once with the present list; or %s", from.Count, len(list), help)
		}
		return source.Static(list...), nil
	default:
		return nil, cannot(ns, "its partitions come from %s, code of its own: run a parti.Manager with parti.RoleCoordinator and that source; or %s",
			from.Type, help)
	}
}

// committed returns the partitions of the last commit, owned or parked.
func committed(ctx context.Context, control *kv.Store) ([]types.Partition, error) {
	e, err := control.Get(ctx, assignment.CommitKey)
	if errors.Is(err, kv.ErrNotFound) || err == nil && e.Absent() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	commit, err := record.DecodeCommit(e.Value)
	if err != nil {
		return nil, err
	}
	get := record.StoreGetter(control)
	refs, err := record.FetchIndex(ctx, get, &commit)
	if err != nil {
		return nil, err
	}
	var list []types.Partition
	for _, r := range refs {
		payload, err := record.FetchAndVerifyCommitPayload(ctx, get, r)
		if err != nil {
			return nil, err
		}
		for i := range payload.Entries {
			list = append(list, payload.Entries[i].Partition)
		}
	}
	parked, err := record.FetchParked(ctx, get, &commit)
	for i := range parked {
		if !parked[i].Retired {
			list = append(list, parked[i].Partition)
		}
	}
	return list, err
}

// placement returns the strategy of a group.
func (l *leading) placement(ns string, spec *groupspec.Spec) (types.AssignmentStrategy, error) {
	name := l.strategy
	if name == "" && spec != nil {
		name = spec.Strategy
		if name == "" {
			return nil, cannot(ns, "its strategy is %s, with settings or code of its own: run a parti.Manager with parti.RoleCoordinator and that "+
				"strategy; or pass -strategy if another one will do", spec.Type)
		}
	}
	if name == "" {
		name = "sticky"
	}
	s, known := strategies[name]
	if !known {
		return nil, cannot(ns, "its strategy is %q, which this release does not know; pass -strategy if another one will do", name)
	}
	return s, nil
}

// config returns the settings to lead the group with: the buckets' own, the spec's, and those of the command line.
func (l *leading) config(ns string, b kv.Buckets, spec *groupspec.Spec) parti.Config {
	c := parti.DefaultConfig()
	c.Namespace, c.Role, c.WorkerID = ns, parti.RoleCoordinator, l.id
	c.HeartbeatTTL = b.Heartbeat.HeartbeatTTL()
	c.Storage, c.Replicas = b.Control.Layout()
	c.HeartbeatInterval = c.HeartbeatTTL / 5
	c.Logger = l.log.With("group", ns)
	if spec != nil {
		s := spec.Settings
		c.HeartbeatInterval, c.LeaderLease = s.HeartbeatInterval, s.LeaderLease
		c.ColdStartWindow, c.ScaleWindow, c.SettleDelay, c.Cooldown = s.ColdStartWindow, s.ScaleWindow, s.SettleDelay, s.Cooldown
		c.DampingPeriod, c.HandoffTimeout, c.LabelSpillGrace = s.DampingPeriod, s.HandoffTimeout, s.LabelSpillGrace
		c.UnlabeledPolicy, c.ExpectedWorkers, c.MaxWorkers = s.UnlabeledPolicy, s.ExpectedWorkers, s.MaxWorkers
	}
	if l.maxWorkers >= 0 {
		c.MaxWorkers = l.maxWorkers
	}
	c.StartTimeout = 20 * time.Second
	return c
}
