package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
