package parti

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/types"
)

// leadership is what exists while this worker leads.
type leadership struct {
	trouble atomic.Pointer[time.Time] // of the last trouble with the store, on the monotonic clock
	// sourceless counts the terms in a row that ended because the source failed. The loop of the present term's calculator owns it.
	sourceless int
	// troubled counts those that ended because of troubles with the store, the last of them troubledIn. It is the same loop's.
	troubled   int
	troubledIn uint64
	// left counts the calls of source and strategy that no term waits for any more.
	left assignment.LeftBehind

	mu   sync.Mutex // guards everything below; group hooks about the lead are added under it, so that they are in order
	term uint64     // the present term; 0: none
	// leaving is why the term is about to be given up; nil: it is not.
	leaving error
	// rebalance is the one under way, and begun when it started; nil: none.
	rebalance *Rebalance
	begun     time.Time

	end  context.CancelFunc
	last chan struct{} // closed when the goroutine of the last term has ended
	calc *assignment.Calculator
}

// noteTrouble holds deaths back for a while: an outage of the store is not a mass death.
func (l *leadership) noteTrouble() {
	now := time.Now()
	l.trouble.Store(&now)
	if calc := l.calculator(); calc != nil {
		calc.NoteTrouble()
	}
}

func (l *leadership) lastTrouble() time.Time {
	if at := l.trouble.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (l *leadership) calculator() *assignment.Calculator {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calc
}

func (l *leadership) setCalculator(c *assignment.Calculator) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calc = c
}

// elected begins a term. It runs on the elector's goroutine.
func (m *Manager) elected(t election.Term) {
	m.set.Metrics.LeaderChanged(true)
	m.lead.elected(m, t.Revision)
	m.health.lead(t.Revision)
	m.health.recover(causeLeader)
	m.parts.elector.SetCommitVersion(m.parts.follower.Highest()) // what renewals announce until this leader commits itself
	ctx, cancel := context.WithCancel(m.ctx)
	l := &m.lead
	l.mu.Lock()
	before, done := l.last, make(chan struct{})
	l.end, l.last = cancel, done
	l.mu.Unlock()
	m.jobs.Go(func() {
		if before != nil {
			<-before
		}
		commits := m.commitsSeen()
		err := m.serve(ctx, t)
		close(done) // before it rests: another incarnation of this process may be elected meanwhile
		if err != nil && ctx.Err() == nil {
			m.fail(fmt.Errorf("parti: stepping down: %w", err))
			m.lead.stepping(m, err)
			m.stepDown(t, err, commits)
		}
	})
}

// demoted ends the term. It runs on the elector's goroutine, which refuses commits already.
func (m *Manager) demoted(t election.Term, cause error) {
	l := &m.lead
	l.mu.Lock()
	end := l.end
	l.mu.Unlock()
	end()
	m.health.lead(0)
	m.set.Metrics.LeaderChanged(false)
	l.lost(m, cause)
}

// serve does a leader's work until ctx ends or the calculator gives up; the error says why it did.
func (m *Manager) serve(ctx context.Context, t election.Term) error {
	m.leaveSpec()
	p, timing := m.parts, m.set.timing()
	var gc *assignment.CommitGC
	pub, err := assignment.NewAssignmentPublisher(assignment.PublisherConfig{
		Store: p.buckets.Control, Committer: p.elector, Holder: t.Holder, Term: t.Revision, HighestVersion: p.follower.Highest(),
		RequestTimeout: timing.RequestTimeout, Metrics: m.set.Metrics, Logger: m.set.Logger, GCTrigger: func() { gc.Trigger() },
	})
	if err != nil {
		return err
	}
	gaveUp := make(chan error, 1)
	calc, err := assignment.NewCalculator(m.calculatorConfig(t, pub, gaveUp))
	if err != nil {
		return err
	}
	gc, err = assignment.NewCommitGC(assignment.CommitGCConfig{
		Publisher: pub, Applied: func() []int64 { return appliedVersions(calc.Monitor().Workers()) }, Metrics: m.set.Metrics, Logger: m.set.Logger,
	})
	if err != nil {
		return err
	}
	_ = gc.Start() // it is new
	defer gc.Stop()
	if err := calc.Start(); err != nil {
		return err
	}
	defer func() { _ = calc.Stop(context.Background()) }() // returns: the loop never waits for user code
	m.lead.setCalculator(calc)
	defer m.lead.setCalculator(nil)
	stop, err := m.answerRefresh(calc)
	if err != nil {
		return err
	}
	defer stop()
	select {
	case err := <-gaveUp:
		return err
	case <-ctx.Done():
		return nil
	}
}

// calculatorConfig says what a calculator of the term works with. gaveUp gets why it cannot go on.
func (m *Manager) calculatorConfig(t election.Term, pub *assignment.AssignmentPublisher, gaveUp chan<- error) assignment.Config {
	p := m.parts
	return assignment.Config{
		Self: t.Holder, Namespace: m.set.Namespace, Heartbeats: p.buckets.Heartbeat, Control: p.buckets.Control, Publisher: pub, Source: m.source, Strategy: m.strategy,
		HeartbeatTTL: m.set.HeartbeatTTL, RequestTimeout: m.set.timing().RequestTimeout, LeftBehind: &m.lead.left,
		ColdStartWindow: m.set.ColdStartWindow, PlannedScaleWindow: m.set.ScaleWindow, SettleDelay: m.set.SettleDelay,
		ExpectedWorkers: m.set.ExpectedWorkers, MaxWorkers: m.set.MaxWorkers, Cooldown: m.set.Cooldown,
		UnlabeledPolicy: m.set.UnlabeledPolicy, LabelSpillGrace: max(m.set.LabelSpillGrace, 0), DampingPeriod: m.set.DampingPeriod,
		HandoffTimeout: m.set.HandoffTimeout,
		LeaderCheck:    func(ctx context.Context) error { return p.elector.CheckLeadership(ctx, t.Revision) },
		DrainPatience:  max(m.set.HandoffTimeout, 0), // 0, where that is for ever: the default
		SeenVersion:    p.follower.Highest(), LastTrouble: m.lead.lastTrouble(), Metrics: m.set.Metrics, Logger: m.set.Logger,
		OnStateChange: func(_, to types.CalculatorState, reason string) { m.health.setCalculator(t.Revision, to, reason) },
		OnListing: func(err error, failed int, since time.Time) {
			if err := m.listed(t.Revision, causeListing, err, failed, since); err != nil {
				send(gaveUp, err)
			}
		},
		OnOrders: func(err error, failed int, since time.Time) {
			if err := m.listed(t.Revision, causeOrders, err, failed, since); err != nil {
				send(gaveUp, err)
			}
		},
		OnHold: func(h assignment.Hold) {
			if err := m.holds(t.Revision, h); err != nil {
				send(gaveUp, err)
			}
		},
		OnPublish: func(err error, failed int, since time.Time) { m.published(t.Revision, err, failed, since) },
		OnSource: func(err error, failed int, since time.Time) {
			if err := m.sourced(err, failed, since); err != nil {
				send(gaveUp, err)
			}
		},
		OnStepDown: func(err error) { send(gaveUp, err) },
		OnTrouble:  func(err error) { m.fail(fmt.Errorf("parti: leading: %w", err)) },
		OnRebalanceStarted: func(reason string, version int64) {
			m.lead.started(m, Rebalance{Term: t.Revision, Generation: version, Reason: reason})
		},
		OnRebalanceEnded: func(r assignment.RebalanceResult) {
			m.lead.ended(m, Rebalance{Term: t.Revision, Generation: r.Version, Reason: r.Reason, Moved: r.Moved, Took: r.Took, Err: r.Err})
		},
	}
}

// refreshSubject is where the leader takes requests to look at the source.
func (m *Manager) refreshSubject() string { return "_PARTI." + m.set.Namespace + ".refresh" }

// answerRefresh lets the leader answer Refresh of other workers, one at a time.
func (m *Manager) answerRefresh(calc *assignment.Calculator) (stop func(), err error) {
	sub, err := m.js.Conn().Subscribe(m.refreshSubject(), func(msg *nats.Msg) {
		ctx, cancel := context.WithTimeout(m.ctx, refreshTimeout)
		defer cancel()
		_ = msg.RespondMsg(refreshAnswer(calc.Refresh(ctx))) // who asked finds out by its own deadline
	})
	if err != nil {
		return nil, fmt.Errorf("parti: subscribe to %q: %w", m.refreshSubject(), err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

const refreshTimeout = 30 * time.Second

// LabelState returns what this leader last decided about labels; false on a worker that does not lead, or has not decided yet. It is a
// copy.
func (m *Manager) LabelState() (types.LabelState, bool) {
	calc := m.lead.calculator()
	if calc == nil {
		return types.LabelState{}, false
	}
	pools, parked, ok := calc.LabelSnapshot()
	return types.LabelState{PoolSizes: pools, Parked: parked}, ok
}

// Refresh makes the leader, whichever worker that is, look at the partition source at once and believe what it sees. It returns
// when the change is committed, or there was none. Without a deadline in ctx it waits 30 s at most.
//
// "None" is what the leader's source says. A source that reads from replicas may not show yet what was written a moment ago: source.KV
// shows what the leader's own value of it wrote, or has heard of, but a write by another process, or through another value, may take some
// milliseconds longer. Refresh may then return before that change is committed; the leader looks again when the source announces it. A source
// whose revision has gone back, as that of a restored backup does, is believed after a HeartbeatTTL, for which Refresh waits.
//
// The error wraps [ErrSourceFailed] where the leader's source failed, and [ErrNotLeader] where nobody leads at the moment: the source is looked at
// when somebody does. For errors.Is it is the same on every worker, whoever leads. Over a connection with nats.NoEcho no leader of that same
// connection can be asked: that is [ErrNotLeader] as well.
func (m *Manager) Refresh(ctx context.Context) error {
	switch m.State() {
	case types.StateInit:
		return ErrNotStarted
	case types.StateStopping, types.StateStopped:
		return ErrStopped
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
	}
	if calc := m.lead.calculator(); calc != nil {
		if err := calc.Refresh(ctx); !errors.Is(err, types.ErrNotLeader) {
			return err
		}
	}
	answer, err := m.js.Conn().RequestWithContext(ctx, m.refreshSubject(), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders) && m.js.Conn().Opts.NoEcho:
		return fmt.Errorf("%w: no worker leads at the moment, or it does over this connection, which has nats.NoEcho() and so brings it no "+
			"request from here: connect without that, or give each Manager a connection of its own", types.ErrNotLeader)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no worker leads at the moment; the source is looked at when one does", types.ErrNotLeader)
	case err != nil:
		return fmt.Errorf("parti: refresh: %w", err)
	}
	return refreshResult(answer)
}

// appliedVersions returns the versions that live workers have applied: what those commits refer to is kept.
func appliedVersions(v assignment.View) []int64 {
	versions := make([]int64, 0, len(v.Members))
	for _, m := range v.Members {
		versions = append(versions, m.Heartbeat.AppliedVersion)
	}
	return versions
}
