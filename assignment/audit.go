package assignment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// auditable is the capability chain: only a worker that acknowledges commits can be said to be behind, and only one that honours the
// handoff leaves its partitions safely when its key is deleted.
const auditable = types.CapAckV1 | types.CapHandoffV1

// errRecovered: the worker to evict has caught up, or is another one by now.
var errRecovered = errors.New("assignment: not behind any more")

// audit looks for workers that heartbeat and do not follow. It belongs to the loop.
//
// A worker is behind from the moment at which this leader first saw it with an applied version below the present commit's, on this
// process's clock, for as long as that version stays the same: who makes progress is slow, not stuck. One with runs that have not returned,
// whether or not its heartbeat can name them, is draining, which is not behind: it may have to repeat an older version. Those that leave
// are not audited, and neither are those whose keys are there and of which nothing was heard for longer than a key lives: they are dead.
type audit struct {
	next   time.Time
	lags   map[types.Holder]lag
	behind []string // sorted
}

type lag struct {
	applied int64
	since   time.Time
	tried   time.Time // when it was to be evicted last
}

// look takes in a view, and returns those that are behind for as long as calls for eviction.
func (a *audit) look(cfg *Config, r *roster, view View, version int64, now time.Time) (stuck []types.Holder) {
	lags := make(map[types.Holder]lag)
	a.behind = nil
	for id, m := range view.Members {
		if !lagging(&m.Heartbeat, version) || m.Unreadable || r.unheard(&m, now) {
			continue
		}
		h := m.Holder()
		l, known := a.lags[h]
		if !known || l.applied != m.AppliedVersion {
			l = lag{applied: m.AppliedVersion, since: now}
		}
		lags[h] = l
		if now.Sub(l.since) >= cfg.ApplyGracePeriod {
			a.behind = append(a.behind, id)
		}
		if now.Sub(later(l.since, l.tried)) >= cfg.ExtendedApplyGracePeriod {
			stuck = append(stuck, h)
		}
	}
	a.lags = lags
	slices.Sort(a.behind)
	slices.SortFunc(stuck, compareHolders)
	return stuck
}

// lagging reports whether the worker takes part and has not applied the version.
func lagging(h *types.Heartbeat, version int64) bool {
	part := h.State == types.WorkerJoining || h.State == types.WorkerActive
	return part && h.Capabilities.Has(auditable) && h.AppliedVersion < version && len(h.Unreturned) == 0 && h.Draining == 0
}

// audit does what is due of the audit.
func (l *loop) audit(now time.Time, until func(time.Time)) {
	if l.committed == nil {
		return
	}
	if now.Before(l.audits.next) {
		until(l.audits.next)
		return
	}
	l.audits.next = now.Add(l.cfg.AuditInterval)
	until(l.audits.next)
	before := l.audits.behind
	stuck := l.audits.look(l.cfg, l.roster, l.c.monitor.Workers(), l.committed.Version, now)
	if !slices.Equal(before, l.audits.behind) {
		l.cfg.Logger.Warn("workers behind the commit", "version", l.committed.Version, "workers", l.audits.behind)
		l.cfg.Metrics.WorkersBehind(len(l.audits.behind))
	}
	if len(stuck) == 0 || l.cfg.LeaderCheck == nil || !l.roster.recovery.until(now).IsZero() {
		return
	}
	// One at a time: should the cause lie elsewhere, it does not cost the whole fleet at once.
	h, version := stuck[0], l.committed.Version
	lag := l.audits.lags[h]
	lag.tried = now // another full grace before it is tried again
	l.audits.lags[h] = lag
	l.restraint.probation.evict(h.Worker, h.Incarnation, now)
	l.wg.Go(func() {
		evicted := l.c.evict(l.ctx, h, version)
		select {
		case l.repaired <- repair{h.Worker, evicted}:
		case <-l.ctx.Done():
		}
	})
}

// repair is the outcome of an eviction. evicted: the key is gone, or may be.
type repair struct {
	worker  string
	evicted bool
}

// evict deletes the key of a worker that heartbeats and does not follow: so it fences itself and claims anew, and those who wait for it
// may start one HeartbeatTTL later. Moving its partitions would only park them behind it.
//
// The heartbeats are another stream than the leader key, so no batch can span both. Leadership is proved by a renewal right
// before, and the delete holds only for the very heartbeat that was found behind.
func (c *Calculator) evict(ctx context.Context, h types.Holder, version int64) bool {
	err := func() error {
		ctx, cancel := context.WithTimeout(ctx, 4*c.cfg.RequestTimeout)
		defer cancel()
		for attempt := 0; ; attempt++ {
			if err := c.cfg.LeaderCheck(ctx); err != nil {
				return err
			}
			err := c.deleteBehind(ctx, h, version)
			if !kv.IsConflict(err) || attempt == 2 { // it has just renewed its key
				return err
			}
		}
	}()
	switch {
	case err == nil:
		c.cfg.Logger.Warn("worker evicted: it heartbeats and does not follow", "reason", "audit_repair", "worker", h.Worker, "incarnation", h.Incarnation, "version", version)
		c.cfg.Metrics.WorkerEvicted(h.Worker)
		return true
	case errors.Is(err, errRecovered), ctx.Err() != nil:
	default:
		c.cfg.Logger.Warn("stuck worker not evicted", "worker", h.Worker, "error", err)
		return kv.IsUnknown(err) || kv.IsTimeout(err) // the key may be gone all the same
	}
	return false
}

func (c *Calculator) deleteBehind(ctx context.Context, h types.Holder, version int64) error {
	key := heartbeatPrefix + h.Worker
	e, err := c.cfg.Heartbeats.Get(ctx, key)
	if err != nil {
		return err
	}
	if e.Absent() {
		return errRecovered
	}
	said, err := types.DecodeHeartbeat(h.Worker, e.Value)
	if err != nil {
		return fmt.Errorf("assignment: evict %q: %w", h.Worker, err)
	}
	if said.Holder() != h || !lagging(&said, version) {
		return errRecovered
	}
	_, err = c.cfg.Heartbeats.Delete(ctx, key, e.Revision)
	return err
}
