package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	heartbeatPrefix = "heartbeat."
	// feedBuffer is how many live messages may wait. What overflows is lost, noticed, and read again by a listing.
	feedBuffer = 8192
	// firstListingRetry is the first wait after a failed listing.
	firstListingRetry = 50 * time.Millisecond
)

// MonitorConfig is what a WorkerMonitor works on. All of it but OnListing is required.
type MonitorConfig struct {
	Heartbeats *kv.Store
	Namespace  string
	// HeartbeatTTL is the age at which the server ends a heartbeat. A complete listing is made at every half of it.
	HeartbeatTTL time.Duration
	// RequestTimeout bounds one listing, and the look at the bucket's identity.
	RequestTimeout time.Duration
	// OnListing is called with the outcome of each listing, see [Config].
	OnListing func(err error, failed int, since time.Time)
	Logger    *slog.Logger
}

// WorkerMonitor keeps the leader's view of all heartbeats.
//
// It hears every change over a plain subscription, with the revision, so that a routine refresh costs one message and nothing
// else. A complete listing is the ground truth: at the start, after a reconnect or an overflow, and at every half of a
// HeartbeatTTL. Both are merged by revision, key by key, so the view never goes back.
//
// One goroutine owns the feed, and one more runs while a listing is under way. The view itself lies behind a mutex that is never
// held over a call.
type WorkerMonitor struct {
	cfg    MonitorConfig
	conn   *nats.Conn
	wake   chan struct{}
	rescan chan struct{}
	buffer int // of the feed, in messages

	mu   sync.Mutex
	view *ledger

	lifecycle sync.Mutex // guards cancel
	cancel    context.CancelFunc
	done      chan struct{}
}

// validate names all that is wrong.
func (cfg *MonitorConfig) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: MonitorConfig.%s", types.ErrInvalidConfig, what))
		}
	}
	need(cfg.Heartbeats != nil, "Heartbeats is nil")
	need(cfg.Namespace != "", "Namespace is empty")
	need(cfg.HeartbeatTTL > 0, "HeartbeatTTL must be positive")
	need(cfg.RequestTimeout > 0, "RequestTimeout must be positive")
	need(cfg.Logger != nil, "Logger is nil")
	return errors.Join(errs...)
}

// NewWorkerMonitor returns a monitor that has not started. Errors wrap types.ErrInvalidConfig and name all faults.
func NewWorkerMonitor(cfg MonitorConfig) (*WorkerMonitor, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	view := newLedger(cfg.Heartbeats.Created())
	view.silence, view.absences.ttl = cfg.HeartbeatTTL, cfg.HeartbeatTTL
	return &WorkerMonitor{
		cfg:    cfg,
		conn:   cfg.Heartbeats.JetStream().Conn(),
		wake:   make(chan struct{}, 1),
		rescan: make(chan struct{}, 1),
		buffer: feedBuffer,
		view:   view,
		done:   make(chan struct{}),
	}, nil
}

// Start subscribes and begins the first listing. A monitor lives once.
func (m *WorkerMonitor) Start() error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.cancel != nil {
		return types.ErrAlreadyStarted
	}
	feed := make(chan *nats.Msg, m.buffer)
	sub, err := m.conn.ChanSubscribe(kv.LiveSubject(m.cfg.Namespace, heartbeatPrefix+"*"), feed)
	if err != nil {
		return fmt.Errorf("assignment: subscribe to heartbeats: %w", err)
	}
	_ = sub.SetPendingLimits(-1, -1) // the channel is the limit
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.run(ctx, sub, feed)
	return nil
}

// Stop ends the monitor and waits for it until ctx ends. It is idempotent, and does nothing if Start was not called.
func (m *WorkerMonitor) Stop(ctx context.Context) error {
	m.lifecycle.Lock()
	cancel := m.cancel
	m.lifecycle.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("assignment: monitor still running: %w", ctx.Err())
	}
}

// Changed receives a value after something happened that a decision may depend on; many changes may share one. Routine refreshes
// are silent.
func (m *WorkerMonitor) Changed() <-chan struct{} { return m.wake }

// Rescan asks for a complete listing soon.
func (m *WorkerMonitor) Rescan() { poke(m.rescan) }

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Workers returns a copy of the view.
func (m *WorkerMonitor) Workers() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.snapshot()
}

// member returns what is known of one worker whose key holds a value.
func (m *WorkerMonitor) member(id string) (Member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.view.records[id]
	if r == nil || r.presence != alive {
		return Member{}, false
	}
	return r.member, true
}

// Released reports whether it is proved that the holder no longer runs the partition, which a commit of that version took away
// from it. False only means that there is no proof here. It may be called from any goroutine.
func (m *WorkerMonitor) Released(h types.Holder, version int64, partitionID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.released(h, version, partitionID)
}

// Suspects returns, sorted, the incarnations seen so far that may still run something under any commit.
func (m *WorkerMonitor) Suspects() []types.Holder {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.suspects()
}

// listing is the outcome of one complete listing.
type listing struct {
	entries map[string]kv.Entry
	mark    listingMark
	err     error
	// created is the bucket's creation time, asked for when the listing looked older than the view.
	created time.Time
}

// run owns the feed, and decides when to list.
func (m *WorkerMonitor) run(ctx context.Context, sub *nats.Subscription, feed <-chan *nats.Msg) {
	defer close(m.done)
	defer func() { _ = sub.Unsubscribe() }()
	status := m.conn.StatusChanged()
	defer m.conn.RemoveStatusListener(status)

	var (
		results   = make(chan listing, 1)
		listings  sync.WaitGroup
		running   bool
		again     = true // a listing is wanted
		retry     = backoff.New(firstListingRetry, m.cfg.HeartbeatTTL/4)
		timer     = time.NewTimer(m.cfg.HeartbeatTTL / 2)
		reconnect = m.conn.Stats().Reconnects
		dropped   int
		outcome   streak
	)
	defer listings.Wait()
	defer timer.Stop()
	for {
		if again && !running {
			again, running = false, true
			listings.Go(func() { results <- m.list(ctx) })
		}
		select {
		case <-ctx.Done():
			return
		case msg := <-feed:
			m.hear(msg)
			if n, err := sub.Dropped(); err == nil && n > dropped {
				m.cfg.Logger.Warn("heartbeats arrive faster than they are read; listing them all", "dropped", n-dropped)
				dropped, again = n, true
			}
		case <-status:
		case <-m.rescan:
			again = true
		case <-timer.C:
			again = true
			timer.Reset(m.cfg.HeartbeatTTL / 2)
		case l := <-results:
			running = false
			if ctx.Err() == nil {
				outcome.tell(m.cfg.OnListing, l.err)
			}
			if m.take(l) {
				retry.Reset()
				timer.Reset(m.cfg.HeartbeatTTL / 2)
			} else {
				timer.Reset(retry.Next())
			}
		}
		connected, n := m.conn.IsConnected(), m.conn.Stats().Reconnects
		if !connected || n != reconnect {
			m.feedCut()
			again = again || connected
			reconnect = n
		}
	}
}

// streak counts listings, looks at the source, or attempts at a commit, that failed in a row.
type streak struct {
	failed int
	since  time.Time
}

func (s *streak) tell(f func(error, int, time.Time), err error) {
	switch {
	case err == nil:
		*s = streak{}
	case s.failed == 0:
		*s = streak{1, time.Now()}
	default:
		s.failed++
	}
	if f != nil {
		f(err, s.failed, s.since)
	}
}

// feedCut notes that changes may have been missed until now.
func (m *WorkerMonitor) feedCut() {
	m.mu.Lock()
	m.view.trouble = time.Now()
	m.mu.Unlock()
	poke(m.wake)
}

func (m *WorkerMonitor) hear(msg *nats.Msg) {
	e, err := kv.ParseLive(m.cfg.Namespace, msg)
	if err != nil {
		m.cfg.Logger.Warn("message on the live subject ignored", "error", err)
		return
	}
	m.mu.Lock()
	material, bad := m.view.observe(e)
	m.mu.Unlock()
	m.complain(bad)
	if material {
		poke(m.wake)
	}
}

func (m *WorkerMonitor) complain(bad error) {
	if bad != nil {
		m.cfg.Logger.Warn("heartbeat cannot be read; its worker gets nothing", "error", bad)
	}
}

// list makes one complete listing. A listing that is older than the view came from a lagging replica, or from another bucket of
// the same name; the creation time tells which.
func (m *WorkerMonitor) list(ctx context.Context) listing {
	m.mu.Lock()
	l := listing{mark: m.view.mark()}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.RequestTimeout)
	defer cancel()
	if l.entries, l.err = m.cfg.Heartbeats.List(ctx, heartbeatPrefix+"*"); l.err != nil {
		return l
	}
	if l.mark.older(l.entries) {
		l.created, l.err = m.cfg.Heartbeats.Identity(ctx)
	}
	return l
}

// take merges a listing into the view and reports whether it was a good one.
func (m *WorkerMonitor) take(l listing) bool {
	if l.err != nil {
		if !errors.Is(l.err, context.Canceled) {
			m.cfg.Logger.Warn("heartbeats could not be listed", "error", l.err)
		}
		m.feedCut()
		return false
	}
	m.mu.Lock()
	ok, restarted, bad := m.view.merge(l)
	m.mu.Unlock()
	for _, err := range bad {
		m.complain(err)
	}
	if !ok {
		m.cfg.Logger.Info("a listing of the heartbeats was older than what is known; listing again")
		return false
	}
	if restarted {
		m.cfg.Logger.Warn("the heartbeat bucket is another one now", "created", l.created)
		m.Rescan()
	}
	poke(m.wake)
	return true
}
