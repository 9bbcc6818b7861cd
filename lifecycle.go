package parti

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/heartbeat"
	"github.com/partigo/parti/internal/ownership"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// capabilities is what this release speaks.
const capabilities = types.CapAckV1 | types.CapHandoffV1 | types.CapLabelsV1

// begin does what Start promises. What it has started is ended by Stop.
func (m *Manager) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("parti: not started: its context had ended before: %w", err)
	}
	m.checkReconnects()
	buckets, err := m.findBuckets(ctx)
	if err != nil {
		return err
	}
	claimed := make(chan error, 1)
	p, err := m.assemble(buckets, claimed)
	if err != nil {
		return err
	}
	if !m.setParts(p) { // before anything runs that uses them
		return ErrStopped
	}
	if err := p.feed.start(); err != nil {
		p.heartbeats.Close() // a Stop has nothing to wait for
		return fmt.Errorf("%w: subscribe: %w", ErrNoServer, err)
	}
	if id := m.set.WorkerID; id != "" {
		if err := p.feed.setOwn(id); err != nil { // so that the end of an earlier life's key is heard
			m.fail(fmt.Errorf("parti: cannot follow the own heartbeat: %w", err))
		}
	}
	m.runtime.Start()
	p.follower.Start()
	p.elector.Start()
	p.heartbeats.Start()
	select {
	case err := <-claimed:
		return err
	case <-ctx.Done():
		return m.unclaimed(ctx)
	}
}

// assemble makes the parts. The first claim, or the error that forbids one, is sent to claimed.
func (m *Manager) assemble(buckets kv.Buckets, claimed chan<- error) (*parts, error) {
	timing := m.set.timing()
	p := &parts{buckets: buckets, created: [2]time.Time{buckets.Control.Created(), buckets.Heartbeat.Created()}}
	var err error
	p.elector, err = election.New(election.Config{
		Store: buckets.Control, Lease: m.set.LeaderLease, RequestTimeout: timing.RequestTimeout, Logger: m.set.Logger,
		OnElected: m.elected, OnLost: m.demoted, OnSilence: m.silent,
	})
	if err != nil {
		return nil, err
	}
	p.follower = assignment.NewFollower(assignment.FollowerConfig{
		Store: buckets.Control, Silence: m.set.LeaderLease / 2, RequestTimeout: timing.RequestTimeout,
		Apply:  m.apply,
		Read:   m.observeRead,
		Unread: m.unread,
		// Either may be gone, or another one than before.
		Doubt: m.mendBuckets,
		FeedBroken: func() {
			if err := p.feed.resubscribe(); err != nil {
				m.fail(fmt.Errorf("parti: cannot subscribe anew: %w", err))
			}
		},
		Metrics: m.set.Metrics, Logger: m.set.Logger,
	})
	p.heartbeats = heartbeat.New(heartbeat.Config{
		Store: buckets.Heartbeat, Timing: timing, Lease: m.lease, ID: m.set.WorkerID, Pool: m.set.WorkerPool,
		CommitCreated: func(ctx context.Context) (time.Time, error) { return commitCreated(ctx, buckets.Control) },
		Compose:       m.compose,
		Claimed:       func(h types.Holder) { m.claimed(h); send(claimed, nil) },
		Stored:        func(h types.Heartbeat, rev uint64, _ time.Time) { m.reached(); m.runtime.Stored(h, rev) },
		Fenced:        m.fenced,
		Trouble: func(err error, inARow int) {
			m.trouble(err, inARow)
			if errors.Is(err, ErrWorkerIDTaken) {
				send(claimed, err)
			}
		},
		Metrics: m.set.Metrics, Logger: m.set.Logger,
	})
	p.feed = newFeed(m.js.Conn(), m.set.Namespace, m.set.Logger, m.route, m.connection)
	return p, nil
}

// send sends to a channel of which only the first value counts.
func send(ch chan<- error, err error) {
	select {
	case ch <- err:
	default:
	}
}

func commitCreated(ctx context.Context, control *kv.Store) (time.Time, error) {
	e, err := control.Get(ctx, assignment.CommitKey)
	if errors.Is(err, kv.ErrNotFound) {
		return time.Time{}, nil
	}
	return e.Created, err
}

// route hands a live entry to those it concerns. It runs on the feed's goroutine.
func (m *Manager) route(e kv.Entry) {
	p := m.parts
	switch e.Key {
	case election.Key:
		m.observeLeader(e)
		var version int64
		if info, err := election.DecodeInfo(e); err == nil {
			version = info.CommitVersion
		}
		p.follower.Observe(e, version)
	case assignment.CommitKey:
		p.follower.Observe(e, 0)
	default:
		worker, isHeartbeat := strings.CutPrefix(e.Key, heartbeat.KeyPrefix)
		if !isHeartbeat {
			m.drain.observe(e)
			return
		}
		if worker == m.WorkerID() || worker == m.set.WorkerID {
			p.heartbeats.Observe(e)
		}
		m.runtime.Heard(worker, e)
	}
}

// reconnected makes everybody look for what a cut connection missed. It runs on the feed's goroutine.
func (m *Manager) reconnected() {
	p := m.parts
	p.follower.Reconnected()
	p.elector.Recheck()
	p.heartbeats.Notify()
	m.runtime.Reconnected()
	if m.WorkerID() != "" {
		m.readDrain()
	}
}

// compose fills in what this worker says in its heartbeat. It runs on the publisher's goroutine.
func (m *Manager) compose(h *types.Heartbeat) bool {
	lives := m.runtime.Compose(h)
	h.Capabilities, h.Labels, h.Capacity = capabilities, m.set.Labels, m.set.Capacity
	if m.set.Role != RoleWorker {
		h.Role = m.set.Role
	}
	if m.set.Role.MayLead() {
		h.MaxWorkers = m.set.MaxWorkers
	}
	m.mu.Lock()
	leaving := m.phase == stopping && m.restartGrace == 0 // else the leader would move what is to stay
	m.mu.Unlock()
	switch {
	case m.set.Role == RoleCoordinator:
		h.State = types.WorkerCoordinating
	case leaving:
		h.State = types.WorkerDraining
	case h.AppliedVersion == 0:
		h.State = types.WorkerJoining
	default:
		h.State = types.WorkerActive
	}
	return lives
}

// claimed begins an incarnation. It runs on the publisher's goroutine.
func (m *Manager) claimed(h types.Holder) {
	m.set.Logger.Info("worker ID claimed", "worker", h.Worker, "incarnation", h.Incarnation)
	m.drain.follow(h.Worker)
	m.holder.Store(&h)
	m.runtime.Begin(h)
	p := m.parts
	if err := p.feed.setOwn(h.Worker); err != nil {
		m.fail(fmt.Errorf("parti: cannot follow the own heartbeat: %w", err))
	}
	m.readDrain()
	p.follower.Begin(h)
	m.stand(func(c *candidacy) { c.begin(h) })
	m.health.claimed("claimed " + h.Worker)
	if m.set.Role == RoleFollower {
		m.described.Do(m.leaveSpec)
	}
}

// fenced ends an incarnation. It runs on the publisher's goroutine.
func (m *Manager) fenced(cause error) <-chan struct{} {
	returned := m.runtime.Fence(cause)
	m.lead.stepping(m, cause)
	m.stand(func(c *candidacy) { c.begin(types.Holder{}) })
	m.holder.Store(&types.Holder{Worker: m.WorkerID()})
	m.health.degrade(causeFenced, fmt.Sprintf("the incarnation ended: %v", cause))
	if errors.Is(cause, heartbeat.ErrKeyLost) {
		m.mendBuckets() // perhaps the key is gone with its bucket
	}
	m.fail(cause)
	return returned
}

// trouble takes note of a heartbeat that failed, or of the first one that did not after that. One that was lost alone is no
// degradation: the lease allows for it.
func (m *Manager) trouble(err error, inARow int) {
	if err == nil {
		m.health.recover(causeHeartbeat)
		return
	}
	if !heartbeat.IsWaiting(err) {
		m.lead.noteTrouble()
	}
	if inARow > 1 {
		m.health.degrade(causeHeartbeat, fmt.Sprintf("the heartbeat cannot be written: %v", err))
	}
	m.fail(err)
	if errors.Is(err, kv.ErrUnavailable) {
		m.mendBuckets()
	}
}

// apply hands a verified commit to the runtime. It runs on the follower's goroutine.
func (m *Manager) apply(f assignment.Followed) {
	m.stand((*candidacy).freed)
	if !m.runtime.Apply(ownership.Commit{
		Holder: f.Holder, Version: f.Version, LeaderRevision: f.LeaderRevision, Lifecycle: f.Lifecycle,
		SourceRevision: f.SourceRevision, SourceRevisionKnown: f.SourceRevisionKnown, Digest: f.Digest, Entries: f.Entries,
	}) {
		return
	}
	m.parked.Store(int64(f.Parked))
	if f.Digest == "" && m.set.Role != RoleCoordinator {
		return // not listed yet: this incarnation has only acknowledged
	}
	m.health.advance(types.StateStable, fmt.Sprintf("applied commit %d", f.Version))
	m.readied.Do(func() { close(m.ready) })
	if m.set.hooks.OnAssignment != nil {
		m.call(hook(m.set.hooks.OnAssignment, m.Assignment()))
	}
}

// fail reports an error that nobody waits for.
func (m *Manager) fail(err error) {
	m.health.fail(err)
	m.call(hook(m.set.hooks.OnError, err))
}

// Stop gives everything back and ends: it cancels all partitions with the cause [ErrRevoked], waits for their handlers, says goodbye, so that
// others take over within milliseconds, and waits for everything that the Manager started. It may be called at any time and
// more than once; further calls wait for the first and return its result.
//
// When ctx ends first, Stop stops waiting for handlers: those that have returned are released at once, the others when their lease has run
// out, and the error wraps [ErrDrainTimeout] and names them. If more than 64 have not returned, which is what a heartbeat can name, all are
// released then. It does not wait for hooks any more then, and names one that has not returned. Where the connection is closed there is no
// goodbye, and the error wraps [ErrConnectionClosed]. All errors are joined.
//
// A handler or hook must not wait for Stop, since Stop waits for it: call it from a goroutine of its own there.
//
// With [WithRestartGrace] the partitions stay assigned to this worker's ID instead, and nobody runs them until it is back. A grace
// that is out of range is reported ([ErrInvalidConfig]) and the Manager stops without one.
func (m *Manager) Stop(ctx context.Context, opts ...StopOption) error {
	grace, invalid := restartGrace(opts)
	m.mu.Lock()
	first := m.phase != stopping
	if first {
		m.phase, m.restartGrace = stopping, grace
	}
	p := m.parts
	m.mu.Unlock()
	if !first {
		select {
		case <-m.stopped:
			return m.stopErr
		case <-ctx.Done():
			return fmt.Errorf("parti: the Stop that was called first has not ended: %w", ctx.Err())
		}
	}
	m.health.setPhase(types.StateStopping, "stop")
	err := invalid
	if p != nil {
		err = errors.Join(err, m.unsaid(m.leave(ctx, p, grace)))
	}
	m.cancel()
	m.jobs.Wait()
	reason := "stopped"
	if err != nil {
		reason += ": " + err.Error()
	}
	m.health.setPhase(types.StateStopped, reason)
	m.health.settle()
	m.stopErr = errors.Join(err, m.told(ctx))
	m.changes.close()
	close(m.stopped)
	return m.stopErr
}

// unsaid says of a goodbye that failed that there was no connection for it.
func (m *Manager) unsaid(err error) error {
	if err == nil || !m.js.Conn().IsClosed() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConnectionClosed, err)
}

// told waits for the hooks. Where ctx ends first it names what it waits for.
func (m *Manager) told(ctx context.Context) error {
	var errs []error
	if err := m.hooks.Wait(ctx); err != nil {
		if name, _ := m.calling.Load().(string); name != "" {
			errs = append(errs, fmt.Errorf("parti: the hook %s has not returned: %w", name, err))
		} else {
			errs = append(errs, fmt.Errorf("parti: not all hooks have been called yet: %w", err))
		}
	}
	if err := m.runtime.Told(ctx); err != nil {
		errs = append(errs, fmt.Errorf("parti: the hook OnOwnership has not returned: %w", err))
	}
	return errors.Join(errs...)
}

// leave gives back what the worker has, and ends the parts in the order in which they depend on each other.
func (m *Manager) leave(ctx context.Context, p *parts, restart time.Duration) error {
	returned := m.runtime.Drain()
	p.heartbeats.Notify()
	m.lead.stepping(m, ErrStopped)
	resigned := make(chan error, 1)
	go func() { resigned <- p.elector.Stop(ctx) }()
	select {
	case <-returned:
	case <-ctx.Done():
	}
	grace := ctx
	if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(end) < m.set.timing().RequestTimeout { // the last words deserve a moment
		var cancel context.CancelFunc
		grace, cancel = context.WithTimeout(context.WithoutCancel(ctx), m.set.timing().RequestTimeout)
		defer cancel()
	}
	var err error
	switch {
	case !m.runtime.Nameable(): // last words that do not name them all would release the others
		p.heartbeats.Close()
	case restart > 0:
		err = p.heartbeats.LeaveToReturn(grace, restart)
	default:
		err = p.heartbeats.Leave(grace, types.WorkerLeft)
	}
	err = errors.Join(err, <-resigned)
	p.follower.Stop()
	err = errors.Join(drainError(m.runtime.Stop(ctx)), err)
	p.feed.close()
	return err
}
