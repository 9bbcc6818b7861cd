package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Config says what an Elector works with. The callbacks may be nil. They run one at a time, in the order of the events, on the
// elector's own goroutine: renewals wait while they run, so they hand on whatever takes time. They may call any method but
// Withdraw, Stop, Commit and CheckLeadership.
type Config struct {
	// Store is the control bucket.
	Store *kv.Store
	// Lease is how long the server keeps the key without a renewal, in whole seconds, at least one. A leader renews every third
	// of it. Short leases repair a crash sooner and lose the lead in each hiccup of the store.
	Lease time.Duration
	// RequestTimeout bounds the wait for one answer; a third of the lease is the most that is used.
	RequestTimeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger

	// OnElected tells that a term has begun. Commit takes it from now on.
	OnElected func(Term)
	// OnLost tells that the term is over, once per term and before the next OnElected. Leading is false and Commit refuses the
	// term already, and every Commit that was under way has got its answer or gets it without the callback having to return. The
	// error is nil if the term was given up by SetCandidate, Withdraw or Stop; the key is released after the callback returned.
	OnLost func(Term, error)
	// OnSilence tells that nothing new was observed of the key for the lease that it claims (three leases at most) and a moment, and again
	// after each further one.
	// There is no leader, or the subscription is broken: mend it, and read the key.
	OnSilence func()
}

// Elector takes part in the election for one process. All methods may be called from any goroutine.
type Elector struct {
	cfg    Config
	timing timing
	key    leaseKey
	log    *slog.Logger

	ctx      context.Context // ends when Stop gives up waiting for a release
	cancel   context.CancelFunc
	wake     chan struct{} // something under mu has changed
	requests chan *request // unbuffered: whoever gets one across gets an answer
	started  atomic.Bool
	done     chan struct{} // closed when run has returned

	// view is the present term, nil while there is none. Written by run only.
	view atomic.Pointer[tenure]

	mu        sync.Mutex // never held over a call or a callback
	wish      wish
	sight     sighting
	version   int64     // the highest commit version known
	origin    time.Time // from when on something could be heard
	contested bool      // somebody else's newer state of the key was observed
	recheck   bool
	reset     bool
	abort     context.CancelFunc // ends what is under way for the present term

	// Owned by run.
	held     *held
	former   types.Holder // of the last term
	retry    *backoff.Backoff
	attempts attempts
	silence  time.Time     // of the next OnSilence
	orphan   chan struct{} // closed when a call that hung has ended; nil if there is none
}

// wish is what this process wants to be.
type wish struct {
	holder    types.Holder
	candidate bool
	stop      bool
}

func (w wish) covers(h types.Holder) bool { return w.candidate && !w.stop && w.holder == h }

// tenure is an immutable snapshot of the present term. A renewal makes a new one with the same over channel.
type tenure struct {
	Term
	until time.Time
	over  chan struct{}
}

// New returns an Elector that has not started. It fails with types.ErrInvalidConfig.
func New(cfg Config) (*Elector, error) {
	t, err := newTiming(cfg.Lease, cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	if cfg.Store == nil {
		return nil, fmt.Errorf("%w: the election needs a Store: the control bucket", types.ErrInvalidConfig)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnElected == nil {
		cfg.OnElected = func(Term) {}
	}
	if cfg.OnLost == nil {
		cfg.OnLost = func(Term, error) {}
	}
	if cfg.OnSilence == nil {
		cfg.OnSilence = func() {}
	}
	e := &Elector{
		cfg: cfg, timing: t, log: cfg.Logger,
		key:      leaseKey{store: cfg.Store, ttl: cfg.Lease},
		wake:     make(chan struct{}, 1),
		requests: make(chan *request),
		done:     make(chan struct{}),
		abort:    func() {},
		retry:    backoff.New(2*maxJitter, max(cfg.Lease/4, 2*maxJitter)),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Start begins to take part, once; it returns at once. Until SetCandidate the process only follows.
func (e *Elector) Start() {
	if e.started.CompareAndSwap(false, true) {
		e.mu.Lock()
		e.origin = time.Now()
		e.mu.Unlock()
		go e.run()
	}
}

// Stop gives up the term, if there is one, releases the key, and returns when nothing of the elector runs any more. It may be
// called more than once. When ctx ends first, a release that is under way is abandoned and Stop returns the error; the key then
// expires by itself.
func (e *Elector) Stop(ctx context.Context) error {
	if e.started.CompareAndSwap(false, true) {
		close(e.done)
	}
	e.want(func(w *wish) { w.stop = true })
	select {
	case <-e.done:
		e.cancel()
		return nil
	case <-ctx.Done():
		e.cancel()
		return fmt.Errorf("election: stop: %w", context.Cause(ctx))
	}
}

// SetCandidate says who this process is now and whether it may lead. It returns at once. If a term is held that the new setting
// does not cover, no commit passes any more, what is under way is cancelled, OnLost follows, and the key is released.
func (e *Elector) SetCandidate(h types.Holder, ok bool) {
	e.want(func(w *wish) { w.holder, w.candidate = h, ok })
}

// Withdraw is SetCandidate(present holder, false), and returns when the term is over, the key is released or the attempt was given
// up, and nothing of it can be sent any more.
func (e *Elector) Withdraw(ctx context.Context) error {
	e.want(func(w *wish) { w.candidate = false })
	if !e.started.Load() {
		return nil
	}
	_, err := e.ask(ctx, nil, &request{ctx: ctx, kind: barrier, reply: make(chan answer, 1)})
	if errors.Is(err, types.ErrStopped) {
		return nil
	}
	return err
}

func (e *Elector) want(change func(*wish)) {
	e.mu.Lock()
	change(&e.wish)
	abort := func() {}
	if v := e.view.Load(); v != nil && !e.wish.covers(v.Holder) {
		abort = e.abort
	}
	e.mu.Unlock()
	abort()
	e.signal()
}

func (e *Elector) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Observe takes in a live or read entry of Key. Entries of other keys are ignored. It returns at once.
func (e *Elector) Observe(entry kv.Entry) {
	if entry.Key == Key {
		e.note(entry, true)
	}
}

// note updates the sighting, and wakes the loop and reports true if there is news.
func (e *Elector) note(entry kv.Entry, outside bool) bool {
	e.mu.Lock()
	news := e.sight.observe(entry, outside, time.Now(), e.timing.lease)
	if news {
		e.version = max(e.version, e.sight.record.CommitVersion)
		if v := e.view.Load(); v != nil && !e.sight.heldBy(v.Holder) {
			e.contested = true
		}
	}
	e.mu.Unlock()
	if news {
		e.signal()
	}
	return news
}

// Recheck asks for an early look at the key, after a reconnect for instance: a leader renews, a candidate reads.
func (e *Elector) Recheck() {
	e.mu.Lock()
	e.recheck = true
	e.mu.Unlock()
	e.signal()
}

// Reset tells that the bucket was recreated: revisions known so far mean nothing, and a term held is over.
func (e *Elector) Reset() {
	e.mu.Lock()
	e.reset = true
	e.sight, e.origin = sighting{}, time.Now()
	abort := e.abort
	e.mu.Unlock()
	abort()
	e.signal()
}

// SetCommitVersion gives the commit version that the next renewal tells the followers, for a leader that learnt it without
// committing itself. It never goes back. What cannot be a version is ignored.
func (e *Elector) SetCommitVersion(version int64) {
	if !types.ValidVersion(version) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = max(e.version, version)
}

// Leader returns what was last heard of the leader. It is false while the key is known to be absent or is no leader's, and before
// anything was heard. A leader that crashed is returned until its key has expired: compare SeenAt with the lease.
func (e *Elector) Leader() (Info, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sight.info()
}

// Quiet returns for how long nothing new was heard of the key from outside; of the own writes only the echoes count.
func (e *Elector) Quiet() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sight.heard.After(e.origin) {
		return time.Since(e.sight.heard)
	}
	return time.Since(e.origin)
}

// Leading returns the term that this process holds and may trust at this moment.
func (e *Elector) Leading() (Term, bool) {
	v := e.present()
	if v == nil {
		return Term{}, false
	}
	return v.Term, true
}

// present returns the present term if it may be trusted now, whatever the loop is doing.
func (e *Elector) present() *tenure {
	v := e.view.Load()
	if v == nil || !time.Now().Before(v.until) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.wish.covers(v.Holder) || e.reset {
		return nil
	}
	return v
}
