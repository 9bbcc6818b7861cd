package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// KeyPrefix precedes the worker ID in the key.
const KeyPrefix = "heartbeat."

// coalesce is how long a change waits for others to share its write.
const coalesce = 2 * time.Millisecond

// ErrKeyLost ends an incarnation whose key is in other hands or gone.
var ErrKeyLost = errors.New("heartbeat: key lost")

// errOver: the lease has run out, and the fence that says so is under way.
var errOver = errors.New("heartbeat: incarnation over")

// Config says what to publish and whom to tell. The callbacks run on the publisher's goroutine and must not block.
type Config struct {
	Store  *kv.Store
	Timing Timing
	Lease  *Lease
	// ID is the worker's ID, or empty to take the lowest free one of Pool.
	ID string
	// Pool is the prefix of pooled IDs: <Pool>-0, <Pool>-1, …
	Pool string
	// CommitCreated tells when the present commit was stored, on the server's clock; zero where there is none. A heartbeat
	// bucket younger than the commit has lost keys.
	CommitCreated func(ctx context.Context) (time.Time, error)

	// Compose fills in what the worker says: state, labels, what is applied and what has not returned. It returns false when the
	// incarnation has ended meanwhile: then nothing is said any more.
	Compose func(h *types.Heartbeat) bool
	// Claimed is called when an incarnation begins.
	Claimed func(h types.Holder)
	// Stored is called for every heartbeat that the server has, with its revision; sentAt is from before it was sent.
	Stored func(h types.Heartbeat, revision uint64, sentAt time.Time)
	// Fenced is called when the incarnation ends without a goodbye. The channel it returns is closed when everything that the
	// incarnation ran has returned.
	Fenced func(cause error) (returned <-chan struct{})
	// Trouble is called with the error of a write or a claim that failed and how many have failed in a row, and with nil and 0
	// when one succeeds again.
	Trouble func(err error, inARow int)

	Metrics types.ManagerMetrics
	Logger  *slog.Logger
}

// Publisher is the loop. Make it with New, start it once.
type Publisher struct {
	cfg    Config
	notify chan struct{}
	fence  chan fenced
	seen   chan kv.Entry
	leave  chan farewell

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	start  sync.Once
	left   error // set before done is closed

	// Owned by the loop's goroutine.
	id         string
	former     map[string]bool // incarnations of this process under id
	holder     types.Holder
	over       types.ClaimedOver
	revision   uint64
	inFlight   map[string]sent // heartbeats whose outcome is not known, by nonce
	failures   int             // writes and claims that failed in a row
	created    time.Time       // of the bucket that was claimed in
	bucketLost bool            // that bucket is gone, and nothing has been claimed since
	// deleted is the revision of a delete marker over a key that was this process's own until then, or 0.
	deleted uint64
}

type sent struct {
	heartbeat types.Heartbeat
	at        time.Time
}

// farewell is what an incarnation says last.
type farewell struct {
	state types.WorkerState
	grace time.Duration // with state restarting
}

type fenced struct {
	incarnation string
	cause       error
}

// New returns a publisher that is not started.
func New(cfg Config) *Publisher {
	ctx, cancel := context.WithCancel(context.Background())
	return &Publisher{
		cfg: cfg, ctx: ctx, cancel: cancel, done: make(chan struct{}),
		notify: make(chan struct{}, 1), fence: make(chan fenced, 1), seen: make(chan kv.Entry, 16), leave: make(chan farewell, 1),
		id: cfg.ID, former: map[string]bool{}, inFlight: map[string]sent{},
	}
}

// Start starts the loop; it claims an ID and keeps it. Further calls do nothing.
func (p *Publisher) Start() { p.start.Do(func() { go p.run() }) }

// Notify asks for a heartbeat soon: something that Compose reports has changed. It never blocks.
func (p *Publisher) Notify() {
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

// Fence ends the incarnation, if it is still the present one: its lease has run out. It never blocks.
func (p *Publisher) Fence(incarnation string, cause error) {
	select {
	case p.fence <- fenced{incarnation, cause}:
	default: // one that waits is about the same incarnation: an incarnation is fenced before the next begins
	}
}

// Observe tells what was heard of the worker's own key. It never blocks; what does not fit is found out by the next write.
func (p *Publisher) Observe(e kv.Entry) {
	select {
	case p.seen <- e:
	default:
	}
}

// Leave writes the last words of the incarnation, state left or restarting, and ends the loop. What Compose still names as not
// returned is named in it. It returns when they are stored, or an error when ctx ends first.
func (p *Publisher) Leave(ctx context.Context, state types.WorkerState) error {
	return p.depart(ctx, farewell{state: state})
}

// LeaveToReturn is Leave in state restarting, which asks to have everything kept in place for that long.
func (p *Publisher) LeaveToReturn(ctx context.Context, grace time.Duration) error {
	return p.depart(ctx, farewell{types.WorkerRestarting, grace})
}

func (p *Publisher) depart(ctx context.Context, last farewell) error {
	select {
	case p.leave <- last:
	case <-p.done:
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		p.cancel()
		return p.left
	case <-ctx.Done():
		p.Close()
		return fmt.Errorf("heartbeat: leaving %s: %w", p.holder, ctx.Err())
	}
}

// Close ends the loop without a goodbye and waits for it.
func (p *Publisher) Close() {
	p.cancel()
	p.start.Do(func() { close(p.done) })
	<-p.done
}

func (p *Publisher) run() {
	defer close(p.done)
	for {
		if err := p.claim(); err != nil {
			return // the loop was ended
		}
		p.cfg.Claimed(p.holder)
		cause := p.hold()
		if cause == nil {
			return
		}
		p.cfg.Logger.Warn("incarnation ended", "holder", p.holder, "cause", cause)
		returned := p.cfg.Fenced(cause)
		p.holder, p.revision = types.Holder{}, 0
		clear(p.inFlight)
		select {
		case <-returned:
		case <-p.leave: // an incarnation that is over has nothing to say
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// hold keeps the key until the incarnation ends. It returns nil after a goodbye, and when the loop is to end.
func (p *Publisher) hold() error {
	next := time.NewTimer(p.cfg.Timing.Interval)
	defer next.Stop()
	soon := false
	for {
		select {
		case <-next.C:
			soon = false
		case <-p.notify:
			if !soon { // what comes within the wait shares the write
				soon = true
				next.Reset(coalesce)
			}
			continue
		case f := <-p.fence:
			if f.incarnation == p.holder.Incarnation {
				return f.cause
			}
			continue
		case e := <-p.seen:
			if err := p.judge(e); err != nil {
				return err
			}
			continue
		case last := <-p.leave:
			p.left = p.goodbye(last)
			return nil
		case <-p.ctx.Done():
			return nil
		}
		err := p.publish(func(*types.Heartbeat) {})
		switch {
		case errors.Is(err, ErrKeyLost):
			return err
		case errors.Is(err, errOver):
			next.Reset(p.retryAfter())
			continue
		}
		p.report(err)
		if err != nil {
			next.Reset(p.retryAfter())
		} else {
			next.Reset(p.cfg.Timing.Interval)
		}
	}
}

// retryAfter is short against the interval: a failed write must be repeated while the lease lasts.
func (p *Publisher) retryAfter() time.Duration { return p.cfg.Timing.Interval / 4 }

func (p *Publisher) report(err error) {
	switch {
	case err != nil:
		p.failures++
	case p.failures == 0:
		return
	default:
		p.failures = 0
	}
	p.cfg.Trouble(err, p.failures)
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
