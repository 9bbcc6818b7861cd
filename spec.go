package parti

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/groupspec"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
)

// specTries bounds how often the spec is written before it is given up: nothing of the group depends on it.
const specTries = 5

// leaveSpec leaves in the control bucket, in the background, how this worker would lead the group, so that `parti coordinator` can.
// Followers call it when they have an ID, workers when they begin to lead.
func (m *Manager) leaveSpec() {
	if m.set.Role == RoleCoordinator {
		return
	}
	m.jobs.Go(func() {
		spec, err := m.spec()
		if err == nil {
			err = m.storeSpec(spec)
		}
		if err != nil && m.ctx.Err() == nil {
			m.set.Logger.Warn("the group's spec is not stored; `parti coordinator` may not be able to lead it", "error", err)
		}
	})
}

// storeSpec tries a few times to store the spec: others may be about to store theirs.
func (m *Manager) storeSpec(spec groupspec.Spec) error {
	retry := backoff.New(100*time.Millisecond, m.set.HeartbeatInterval)
	for try := 1; ; try++ {
		err := m.putSpec(spec)
		if err == nil || try == specTries {
			return err
		}
		if backoff.Sleep(m.ctx, retry.Next()) != nil {
			return err
		}
	}
}

// putSpec stores the spec unless it is there.
func (m *Manager) putSpec(spec groupspec.Spec) error {
	ctx, cancel := context.WithTimeout(m.ctx, m.set.timing().RequestTimeout)
	defer cancel()
	control := m.parts.buckets.Control
	e, err := control.Get(ctx, groupspec.Key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	if err == nil && !e.Absent() {
		if have, err := groupspec.Decode(e.Value); err == nil && have.Same(spec) {
			return nil
		}
	}
	spec.By, spec.At = m.WorkerID(), time.Now().UTC()
	value, err := spec.Encode()
	if err != nil {
		return err
	}
	_, err = control.Put(ctx, groupspec.Key, value, e.Revision, 0)
	return err
}

func (m *Manager) spec() (groupspec.Spec, error) {
	c := &m.set.Config
	s := groupspec.Spec{Strategy: strategyName(m.strategy), Type: fmt.Sprintf("%T", m.strategy), Settings: groupspec.Settings{
		HeartbeatInterval: c.HeartbeatInterval, LeaderLease: c.LeaderLease,
		ColdStartWindow: c.ColdStartWindow, ScaleWindow: c.ScaleWindow, SettleDelay: c.SettleDelay, Cooldown: c.Cooldown,
		DampingPeriod: c.DampingPeriod, HandoffTimeout: c.HandoffTimeout, LabelSpillGrace: c.LabelSpillGrace, UnlabeledPolicy: c.UnlabeledPolicy,
		ExpectedWorkers: c.ExpectedWorkers, MaxWorkers: c.MaxWorkers,
	}}
	switch from := m.source.(type) {
	case *source.StaticSource:
		list, err := from.ListPartitions(m.ctx)
		if err != nil {
			return s, err
		}
		s.Source = groupspec.Of(list)
	case *source.KVSource:
		s.Source.Kind = groupspec.KV
		s.Source.Bucket, s.Source.Key = from.Location()
	default:
		s.Source = groupspec.Source{Kind: groupspec.Custom, Type: fmt.Sprintf("%T", from)}
	}
	return s, nil
}

// strategyName returns the name of a strategy of this module with its default settings; empty for any other.
func strategyName(s any) string {
	for name, known := range groupStrategies {
		if s == known {
			return name
		}
	}
	return ""
}

// groupStrategies are what a spec can name.
var groupStrategies = map[string]any{
	"sticky": strategy.Sticky(), "round-robin": strategy.RoundRobin(),
	"consistent-hash": strategy.ConsistentHash(), "weighted-consistent-hash": strategy.WeightedConsistentHash(),
}
