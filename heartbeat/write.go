package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// publish writes one heartbeat. An outcome that stays unknown is resolved at the next attempt.
func (p *Publisher) publish(amend func(*types.Heartbeat)) error {
	h := types.Heartbeat{
		WorkerID: p.id, Incarnation: p.holder.Incarnation, SchemaVersion: types.HeartbeatSchema,
		ClaimedOver: p.over, Nonce: uuid.NewString(),
	}
	if !p.cfg.Compose(&h) {
		return errOver
	}
	amend(&h)
	h.Timestamp = time.Now().UTC()
	data, err := h.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := p.bounded()
	defer cancel()
	at := time.Now()
	p.inFlight[h.Nonce] = sent{h, at}
	rev, err := p.cfg.Store.Put(ctx, KeyPrefix+p.id, data, p.revision, p.life(&h))
	p.cfg.Metrics.HeartbeatSent(time.Since(at), err)
	switch {
	case err == nil:
		p.adopt(h.Nonce, rev)
		return nil
	case kv.IsConflict(err), kv.IsUnknown(err):
		return p.readBack(err)
	}
	delete(p.inFlight, h.Nonce)
	return err
}

// restartKeyLimit bounds how long the last words of a restarting worker stay. It is under the life of markers, which bounds all.
const restartKeyLimit = 5 * time.Minute

// life returns how long the server keeps the heartbeat; 0 is the usual time. The last words of a worker that comes back stay about as long as
// its grace: so a group that restarts as a whole, with nobody left to write the grace into a commit, finds everybody's place again, and
// a starter of the same pool finds the ID that waits for it. Not so while a run has not returned: then the end of the key is the proof
// that it may start elsewhere.
func (p *Publisher) life(h *types.Heartbeat) time.Duration {
	if h.State != types.WorkerRestarting || len(h.Unreturned) > 0 {
		return 0
	}
	grace := (time.Duration(h.RestartGrace)*time.Millisecond + time.Second - 1).Truncate(time.Second)
	return max(p.cfg.Timing.TTL, min(grace, restartKeyLimit))
}

// bounded returns a context for one call: it ends with the request timeout or with what is left of the lease.
func (p *Publisher) bounded() (context.Context, context.CancelFunc) {
	limit := p.cfg.Timing.RequestTimeout
	if left := p.cfg.Lease.Left(); left > 0 {
		limit = min(limit, left)
	}
	return context.WithTimeout(p.ctx, limit)
}

// goodbye writes the last words until they are stored, or the lease is over: then the key expires by itself.
func (p *Publisher) goodbye(last farewell) error {
	for {
		err := p.publish(func(h *types.Heartbeat) { h.State, h.RestartGrace = last.state, last.grace.Milliseconds() })
		if err == nil || errors.Is(err, ErrKeyLost) || errors.Is(err, errOver) {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("heartbeat: goodbye not stored: %w", err)
		}
		select {
		case <-time.After(min(p.retryAfter(), 100*time.Millisecond)):
		case <-p.ctx.Done():
			return err
		}
		if !p.cfg.Lease.Valid() {
			return fmt.Errorf("heartbeat: goodbye not stored before the lease ended: %w", err)
		}
	}
}

// readBack looks what became of the heartbeats in flight. The read may be stale: only a later revision than the known one
// says anything.
func (p *Publisher) readBack(cause error) error {
	ctx, cancel := p.bounded()
	defer cancel()
	e, err := p.cfg.Store.Get(ctx, KeyPrefix+p.id)
	switch {
	case errors.Is(err, kv.ErrNotFound) && kv.IsConflict(cause):
		return p.vanished(ctx, cause)
	case err != nil:
		return cause
	}
	known := p.revision
	if err := p.judge(e); err != nil {
		return err
	}
	if p.revision > known {
		return nil
	}
	return cause
}

// vanished decides about a key of which not even a marker is left: where the bucket was recreated it is lost for certain.
func (p *Publisher) vanished(ctx context.Context, cause error) error {
	if now, err := p.cfg.Store.Identity(ctx); err == nil && !now.Equal(p.created) {
		p.bucketLost = true
		return fmt.Errorf("%w: the bucket was recreated", ErrKeyLost)
	}
	return cause
}

// judge decides what an observation of the own key means. Only a later revision in foreign hands counts.
func (p *Publisher) judge(e kv.Entry) error {
	if e.Revision <= p.revision {
		return nil
	}
	if e.Absent() {
		if e.Op == kv.Delete && p.cfg.Lease.Valid() {
			p.deleted = e.Revision // it cannot have expired, so nobody had it between this process and the delete
		}
		return fmt.Errorf("%w: it was deleted or has expired", ErrKeyLost)
	}
	h, err := types.DecodeHeartbeat(p.id, e.Value)
	if err == nil && h.Incarnation == p.holder.Incarnation {
		p.adopt(h.Nonce, e.Revision)
		return nil
	}
	return fmt.Errorf("%w: %s has it", ErrKeyLost, describe(h, err))
}

func describe(h types.Heartbeat, err error) string {
	if err != nil {
		return "somebody who writes no heartbeat"
	}
	return "incarnation " + h.Incarnation
}

// adopt takes note that the server has the heartbeat with this nonce at this revision.
func (p *Publisher) adopt(nonce string, revision uint64) {
	s, ok := p.inFlight[nonce]
	if !ok || revision <= p.revision {
		return
	}
	p.revision = revision
	clear(p.inFlight)
	p.cfg.Lease.Renew(s.at)
	p.cfg.Stored(s.heartbeat, revision, s.at)
}
