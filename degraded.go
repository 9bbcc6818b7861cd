package parti

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

// The causes of degraded mode. Each is left by the part that entered it, with a proof that it is gone.
const (
	causeStart      = "start"      // no worker ID within StartTimeout; left by the first claim
	causeConnection = "connection" // no connection; left by a heartbeat that was stored
	causeHeartbeat  = "heartbeat"  // the heartbeat cannot be written; left by a heartbeat that was stored
	causeFenced     = "fenced"     // the incarnation ended; left by a new claim
	causeBuckets    = "buckets"    // a bucket is gone; left when both exist again
	causeLeader     = "leader"     // nobody leads; left when a leader is heard of
	causeCommit     = "commit"     // the newest commit cannot be read; left when one is applied
	causeListing    = "listing"    // the leader cannot list the workers; left by a complete listing, or the end of the term
	causeOrders     = "orders"     // a new leader cannot list the orders; left by a complete listing of them, or the end of the term
	causeHold       = "hold"       // the leader's troubles with the store do not end; left when nothing is held any more, or by the end of the term
	causePublish    = "publish"    // the leader cannot commit; left by a commit, when none is needed any more, or by the end of the term
)

// AlertLevel says how long a Manager has been degraded.
type AlertLevel uint8

// The levels in the order in which they are reached. AlertOver says that an alert raised before is over.
const (
	AlertOver AlertLevel = iota
	AlertWarn
	AlertError
	AlertCritical
)

var alertLevelNames = [...]string{"over", "warn", "error", "critical"}

// String returns "over", "warn", "error" or "critical".
func (l AlertLevel) String() string { return alertLevelNames[min(l, AlertCritical)] }

// MarshalText returns what String does, so that the level is readable in JSON and in structured logs.
func (l AlertLevel) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText takes the name of a level, and nothing else.
func (l *AlertLevel) UnmarshalText(text []byte) error {
	i := slices.Index(alertLevelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: alert level %.64q: use one of %s", ErrMalformed, text, strings.Join(alertLevelNames[:], ", "))
	}
	*l = AlertLevel(i)
	return nil
}

// Alert tells that the Manager has been degraded for so long that somebody should look, or no longer is.
type Alert struct {
	Level AlertLevel `json:"level"`
	// Since is when the Manager became degraded.
	Since time.Time `json:"since"`
	// Reason is Status.Degraded, the causes of that moment; empty with AlertOver.
	Reason string `json:"reason,omitempty"`
}

// alarm raises alerts while the Manager stays degraded.
type alarm struct {
	levels [AlertCritical]time.Duration // after which warn, error and critical are raised
	raise  func(Alert)                  // must not block

	mu     sync.Mutex // guards everything below; raise is called under it, so that alerts are in order
	since  time.Time
	raised AlertLevel
	timer  *time.Timer // of the next level; nil when not degraded, or when all are raised
	reason func() string
}

// enter begins to count. A call while it counts does nothing.
func (a *alarm) enter(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = now
		a.arm()
	}
}

// leave ends the alert.
func (a *alarm) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.raised > AlertOver {
		a.raise(Alert{Level: AlertOver, Since: a.since})
	}
	a.since, a.raised, a.timer = time.Time{}, AlertOver, nil
}

// arm waits for the next level. Held: mu.
func (a *alarm) arm() {
	a.timer = nil
	if a.raised == AlertCritical {
		return
	}
	since, level := a.since, a.raised+1
	a.timer = time.AfterFunc(time.Until(since.Add(a.levels[level-1])), func() {
		reason := a.reason()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.since != since || a.raised >= level || reason == "" { // over meanwhile
			return
		}
		a.raised = level
		a.raise(Alert{Level: level, Since: since, Reason: reason})
		a.arm()
	})
}

// alert tells everybody of an alert.
func (m *Manager) alert(a Alert) {
	log := m.set.Logger.Warn
	switch a.Level {
	case AlertOver:
		log = m.set.Logger.Info
	case AlertError, AlertCritical:
		log = m.set.Logger.Error
	}
	log("degraded", "alert", a.Level.String(), "since", a.Since, "reason", a.Reason)
	m.call(hook(m.set.hooks.OnAlert, a))
}

// connection takes note of a change of the connection. It runs on the feed's goroutine. A connection that is back within an
// interval was no degradation.
func (m *Manager) connection(s nats.Status) {
	switch s {
	case nats.CONNECTED:
		m.reconnected()
		return
	case nats.CLOSED:
		m.closed()
		return
	}
	time.AfterFunc(m.set.HeartbeatInterval, func() {
		if nc := m.js.Conn(); m.ctx.Err() == nil && !nc.IsConnected() {
			m.lead.noteTrouble()
			m.health.degrade(causeConnection, fmt.Sprintf("no connection to NATS: it is %v", nc.Status()))
		}
	})
}

// closed ends the Manager, since a closed connection does not come back: the user has closed it, or it has given up. Whoever stops
// the Manager meanwhile waits for the same end. It runs on the feed's goroutine.
func (m *Manager) closed() {
	m.mu.Lock()
	over := m.phase == stopping
	m.mu.Unlock()
	if over {
		return
	}
	m.fail(ErrConnectionClosed)
	m.set.Logger.Error("stopping", "worker", m.WorkerID(), "error", ErrConnectionClosed)
	ctx, cancel := context.WithTimeout(context.Background(), m.set.DrainTimeout)
	go func() {
		defer cancel()
		_ = m.Stop(ctx) // Stop's error is there for whoever calls it
	}()
}

// checkReconnects warns of a connection that will give up.
func (m *Manager) checkReconnects() {
	switch o := m.js.Conn().Opts; {
	case !o.AllowReconnect:
		m.set.Logger.Warn("the connection does not reconnect, so an outage of NATS ends this Manager: connect with nats.MaxReconnects(-1)")
	case o.MaxReconnect >= 0:
		m.set.Logger.Warn("the connection gives up some time, and so would this Manager: connect with nats.MaxReconnects(-1)",
			"attempts", o.MaxReconnect, "wait", o.ReconnectWait)
	}
}

// reached takes note of a write of the own key that the server has.
func (m *Manager) reached() { m.health.recover(causeStart, causeConnection) }

const (
	// stalledListings is how many listings in a row, or attempts at a commit, have to fail, over a quarter of a HeartbeatTTL at least, to be a
	// stall.
	stalledListings = 3
	// stalledFor is after how many HeartbeatTTLs of it somebody else is to lead.
	stalledFor = 2
)

// unlisted is the reason of each cause that is a listing of a leader's.
var unlisted = map[string]string{causeListing: "the leader cannot list the workers", causeOrders: "the leader cannot list the orders"}

// listed takes note of the outcome of a listing in a term: failed in a row, since when. It returns an error when the lead is to be
// given up: a leader that sees nobody, or does not know what is ordered, repairs nothing.
func (m *Manager) listed(term uint64, cause string, err error, failed int, since time.Time) error {
	if err == nil {
		m.health.recover(cause)
		return nil
	}
	if !m.stalled(failed, since) {
		return nil
	}
	m.health.degradeLeader(term, cause, fmt.Sprintf("%s: %v", unlisted[cause], err))
	stalled := time.Since(since)
	if stalled < stalledFor*m.set.HeartbeatTTL {
		return nil
	}
	return fmt.Errorf("%s, for %v: %w", unlisted[cause], stalled.Round(time.Second), err)
}

// published takes note of what came of an attempt at a commit in a term: failed in a row, since when. The lead stays where it is: what refuses
// one leader's commits, as a full bucket does, mostly refuses the next one's too.
func (m *Manager) published(term uint64, err error, failed int, since time.Time) {
	switch {
	case err == nil:
		m.health.recover(causePublish)
	case m.stalled(failed, since):
		m.health.degradeLeader(term, causePublish, fmt.Sprintf("the leader cannot publish the assignment: %v", err))
	}
}

// stalled reports whether failures, so many in a row and since when, are more than what a change of the lead or a blip brings about.
func (m *Manager) stalled(failed int, since time.Time) bool {
	return failed >= stalledListings && time.Since(since) >= m.set.HeartbeatTTL/4
}

// mendBuckets finds out, in the background and once at a time, whether a bucket is gone or another one than before. It makes anew what is
// gone, and goes on until that has succeeded.
func (m *Manager) mendBuckets() {
	if !m.mending.CompareAndSwap(false, true) {
		return
	}
	m.jobs.Go(func() {
		defer m.mending.Store(false)
		retry := backoff.New(100*time.Millisecond, m.set.HeartbeatInterval)
		for m.mend() != nil {
			if backoff.Sleep(m.ctx, retry.Next()) != nil {
				return
			}
		}
	})
}

// mend makes sure that both buckets exist, and that everybody here takes them for what they are.
func (m *Manager) mend() error {
	ctx, cancel := context.WithTimeout(m.ctx, 5*time.Second)
	defer cancel()
	b := m.parts.buckets
	now, err := kv.EnsureBuckets(ctx, m.js, m.bucketConfig())
	if err == nil {
		_, err = b.Control.Identity(ctx) // the stores in use take note of the new streams
	}
	if err == nil {
		_, err = b.Heartbeat.Identity(ctx)
	}
	switch {
	case err == nil:
	case kv.IsTimeout(err), errors.Is(err, ErrNoServer), m.ctx.Err() != nil: // says nothing about the buckets
		return err
	default:
		m.health.degrade(causeBuckets, fmt.Sprintf("a bucket is gone and cannot be made anew: %v", err))
		m.fail(err)
		return err
	}
	m.health.recover(causeBuckets)
	control, heartbeat := now.Control.Created(), now.Heartbeat.Created()
	before := m.parts.created
	m.parts.created = [2]time.Time{control, heartbeat}
	if before == m.parts.created {
		return nil
	}
	m.set.Logger.Warn("a bucket was recreated", "control", control, "heartbeat", heartbeat)
	if !before[0].Equal(control) {
		m.parts.elector.Reset()
		m.drain.forget()
		if m.set.Role == RoleFollower {
			m.leaveSpec()
		}
	}
	m.reconnected()
	return nil
}
