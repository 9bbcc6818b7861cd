package assignment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/kv"
	"github.com/partigo/parti/types"
)

const (
	firstJobRetry = 100 * time.Millisecond
	lastJobRetry  = 15 * time.Second
	// unreadableAttempts is how often a commit that cannot be read is tried before it is given up.
	unreadableAttempts = 5
	// relistSelf is how soon a listing is repeated that lacked the leader's own heartbeat.
	relistSelf = 200 * time.Millisecond
)

// loop owns everything that the calculator knows and wants. Only its goroutine touches it.
type loop struct {
	c    *Calculator
	cfg  *Config
	ctx  context.Context
	wg   sync.WaitGroup // jobs, lookups, the source's watch
	jobs chan jobResult
	seen chan lookup

	view   View
	roster *roster
	source sourceView
	timing timing

	booted     bool // committed is what the store has, as far as is known
	bootedAt   time.Time
	bootFailed bool // the last attempt at that failed
	unreadable int  // failed bootstraps in a row because the commit could not be read
	committed  *plan.State
	parked     int
	// parkedLabels has the labels of what is parked, "" included.
	parkedLabels map[string]bool
	takeover     bool // a commit was found, and nothing has been decided yet
	// checked is the applied version that made the loop look at the store's commit last. If the commit is behind even so, it was lost.
	checked int64
	scratch bool // the commit was given up

	running    bool
	retry      *backoff.Backoff
	err        error // of the last job
	requests   []*request
	settled    []seat // what was decided on last
	profiles   map[types.Holder]profile
	generation int // of the source, decided on last
	pile       pile
	orderly    int // generation of the mandates, decided on last

	failures      int // of the strategy, in a row
	strategyRetry *backoff.Backoff
	strategyAt    time.Time
	strategyErr   error

	pools  labelPools
	damper *damper
	damped []string // as last reported
	audits audit
	// repaired gets the IDs of workers whose key the audit has deleted.
	repaired chan string

	members            []types.Holder // of the last evaluation
	relisted           time.Time
	live, legacy, held int
}

func (c *Calculator) run(ctx context.Context) {
	err := c.runLoop(ctx)
	if e := c.shutDown(); err == nil {
		err = e
	}
	stopped := ctx.Err() != nil
	close(c.done)
	if err == nil || stopped {
		return
	}
	c.cfg.Logger.Error("calculator ended by itself; giving up the lead", "error", err)
	if c.cfg.OnStepDown != nil {
		c.cfg.OnStepDown(err)
	}
}

// runLoop returns nil when ctx has ended, or why the calculator cannot go on. Everything that it started has ended then.
func (c *Calculator) runLoop(parent context.Context) (err error) {
	ctx, cancel := context.WithCancel(parent)
	l := c.newLoop(ctx)
	defer l.wg.Wait()
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
		for _, r := range l.requests {
			r.done <- types.ErrNotLeader
		}
	}()
	if s, ok := c.cfg.Source.(types.WatchablePartitionSource); ok {
		l.wg.Go(func() { c.watchSource(ctx, s) })
	}
	if c.desk != nil {
		l.wg.Go(func() { c.desk.run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.nudge:
		case <-c.monitor.Changed():
			l.view = c.monitor.Workers()
		case <-c.sourceSaid:
			l.source.next = time.Time{}
		case id := <-l.repaired:
			l.damper.evicted(id, time.Now())
		case o := <-l.seen:
			l.looked(o)
		case r := <-c.requests:
			l.requested(r)
		case r := <-l.jobs:
			if err := l.finish(r); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		next := l.step(time.Now())
		c.status.Store(l.status())
		timer.Reset(max(0, time.Until(next)))
	}
}

func (c *Calculator) newLoop(ctx context.Context) *loop {
	return &loop{
		c: c, cfg: &c.cfg, ctx: ctx,
		repaired: make(chan string), jobs: make(chan jobResult, 1), seen: make(chan lookup, 1),
		roster:        newRoster(&c.cfg, c.monitor.Released),
		source:        newSourceView(&c.cfg),
		timing:        timing{cfg: &c.cfg},
		retry:         backoff.New(firstJobRetry, lastJobRetry),
		strategyRetry: backoff.New(c.cfg.SourceInterval/6, c.cfg.SourceInterval),
		profiles:      make(map[types.Holder]profile),
		pools:         newLabelPools(c.cfg.LabelSpillGrace),
		damper:        newDamper(c.cfg.DampingPeriod),
	}
}

// shutDown waits for the monitor, whose calls are bounded.
func (c *Calculator) shutDown() error {
	c.sm.ReturnToIdle()
	return c.monitor.Stop(context.Background())
}

func (l *loop) requested(r *request) {
	r.after = l.source.started
	l.requests = append(l.requests, r)
	l.source.next = time.Time{}
}

// step does what is due, and returns when something will be due without an event.
func (l *loop) step(now time.Time) time.Time {
	next := now.Add(time.Hour)
	until := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if at := l.c.troubleAt.Load(); at != nil {
		l.roster.recovery.trouble(*at)
	}
	if !l.bootedAt.IsZero() { // before, there is nothing to compare its list with
		if l.lookDue(now) {
			l.look()
		} else if !l.source.running {
			until(l.source.next)
		}
	}
	if l.running {
		return next
	}
	if !l.booted {
		if now.Before(l.timing.retryAt) {
			until(l.timing.retryAt)
		} else {
			l.begin(job{bootstrap: true, scratch: l.unreadable >= unreadableAttempts})
		}
		return next
	}
	if !l.sighted(now, until) || !l.orders() {
		return next
	}
	if l.legacy > 0 { // of a plain worker it matters when it was heard last, of which routine refreshes say nothing
		l.view = l.c.monitor.Workers()
	}
	s := l.roster.evaluate(l.view, l.committed, now)
	until(s.next)
	l.relist(&s, now, until)
	l.damp(&s, now)
	until(s.next)
	l.audit(now, until)
	l.noteMembers(&s, now)
	l.administer(&s, now, until)
	l.act(&s, now, until)
	return next
}

// sighted reports whether the view of the workers can be believed.
func (l *loop) sighted(now time.Time, until func(time.Time)) bool {
	if l.view.Listings == 0 {
		return false
	}
	if l.cfg.Self == (types.Holder{}) || l.roster.listings > 0 {
		return true
	}
	if m, ok := l.view.Members[l.cfg.Self.Worker]; ok && m.Holder() == l.cfg.Self {
		return true
	}
	if now.Sub(l.relisted) >= relistSelf {
		l.relisted = now
		l.c.monitor.Rescan()
	}
	until(l.relisted.Add(relistSelf))
	return false
}

// relist asks for another complete listing where one is needed to believe what was seen.
func (l *loop) relist(s *sitting, now time.Time, until func(time.Time)) {
	if !s.relist {
		return
	}
	if now.Sub(l.relisted) >= suspicionInterval {
		l.relisted = now
		l.c.monitor.Rescan()
	}
	until(l.relisted.Add(suspicionInterval))
}

// noteMembers remembers since when membership has been quiet.
func (l *loop) noteMembers(s *sitting, now time.Time) {
	members := make([]types.Holder, len(s.seats))
	for i := range s.seats {
		members[i] = s.seats[i].Holder
	}
	if !slices.Equal(members, l.members) {
		l.members, l.timing.quietSince = members, now
	}
	l.counts(s)
}

// act begins what is to be done now, and shows what is waited for.
func (l *loop) act(s *sitting, now time.Time, until func(time.Time)) {
	if !l.sourceReady(now, until) {
		return
	}
	if l.lostCommit() && !l.scratch && l.checked < l.view.Applied {
		// Perhaps only what was read of the store was old.
		l.checked, l.booted = l.view.Applied, false
		l.begin(job{bootstrap: true})
		return
	}
	if l.takeManual(s) {
		return
	}
	f := facts{
		change:     compare(l.committed, s, l.profiles),
		first:      l.committed == nil,
		takeover:   l.takeover,
		lost:       l.lostCommit(),
		partitions: l.source.generation != l.generation,
		orders:     l.roster.mandates.generation != l.orderly || s.due(),
		strategy:   l.strategyAt,
		targets:    s.targets,
		spill:      l.pools.overdue(l.spilled(s, now, until)),
		relief:     l.relief(s),
	}
	if sameSeats(s.seats, l.settled) && l.err == nil {
		f.change = change{} // decided on already
	}
	inPlace := f.inPlace()
	reason, at, window := l.timing.decide(f, now)
	switch {
	case reason == "":
		l.c.sm.ReturnToIdle()
	case now.Before(at):
		until(at)
		if window {
			l.c.sm.EnterScaling(reason)
		}
	default:
		l.rebalance(reason, s, nil, inPlace)
	}
}

// sourceReady reports whether there are partitions to decide on. A new leader waits a moment for the source before it goes on
// with those of the last commit.
func (l *loop) sourceReady(now time.Time, until func(time.Time)) bool {
	if !l.source.asked {
		if patience := l.bootedAt.Add(firstSourceWait); now.Before(patience) {
			until(patience)
			return false
		}
	}
	return l.source.known
}

// lostCommit reports whether the store's commit is older than one that a worker has applied, or gone.
func (l *loop) lostCommit() bool {
	return l.scratch || l.view.Applied > 0 && (l.committed == nil || l.committed.Version < l.view.Applied)
}

// takeManual begins a rebalance that was asked for, if the source has been read for it.
func (l *loop) takeManual(s *sitting) bool {
	ready := slices.ContainsFunc(l.requests, func(r *request) bool { return r.ready })
	if !ready || s.targets == 0 {
		return false
	}
	var take, keep []*request
	for _, r := range l.requests {
		if r.ready {
			take = append(take, r)
		} else {
			keep = append(keep, r)
		}
	}
	l.requests = keep
	l.rebalance(take[0].reason, s, take, false)
	return true
}

// rebalance begins a job that makes the next commit. inPlace: the strategy is not asked, and nothing that has an owner moves.
func (l *loop) rebalance(reason string, s *sitting, requests []*request, inPlace bool) {
	sm := l.c.sm
	switch {
	case reason == types.LifecycleEmergency:
		sm.TryClaimEmergency()
	case !sm.EnterRebalancing(reason):
		sm.TryClaimRebalancing(reason)
	}
	j := job{
		reason: reason, seats: s.seats, committed: l.committed, requests: requests,
		source: l.source.list, generation: l.source.generation,
		seen: []int64{l.view.Applied, l.cfg.SeenVersion}, inPlace: inPlace,
		banned: l.roster.mandates.ban(s.seats), orders: l.roster.mandates.generation,
	}
	j.spilled, _ = l.pools.due(time.Now())
	if l.lostCommit() {
		if j.reissue = l.c.monitor.Suspects(); len(j.reissue) == 0 { // nobody can run anything; the entries are new all the same
			j.reissue = []types.Holder{s.seats[0].Holder}
		}
		l.cfg.Logger.Warn("the store lost a commit; every partition is given out anew", "applied", l.view.Applied, "holders", len(j.reissue))
	}
	l.begin(j)
}

func (l *loop) begin(j job) {
	l.running = true
	l.wg.Go(func() { l.jobs <- l.c.do(l.ctx, j) })
}

// lookDue reports whether the source is to be looked at now.
func (l *loop) lookDue(now time.Time) bool { return !l.source.running && !now.Before(l.source.next) }

func (l *loop) look() {
	l.source.running = true
	l.source.started++
	number := l.source.started
	l.wg.Go(func() { l.seen <- l.c.look(l.ctx, number) })
}

// looked takes in an observation of the source.
func (l *loop) looked(o lookup) {
	l.source.running = false
	vouched := slices.ContainsFunc(l.requests, func(r *request) bool { return !r.ready && r.after < o.number })
	before := l.source.err
	l.source.take(o, vouched, l.view.Applied > 0, l.cfg.SourceInterval)
	l.source.log(l.cfg.Logger, before)
	var keep []*request
	for _, r := range l.requests {
		switch {
		case r.ready, r.after >= o.number:
		case o.err != nil:
			r.done <- o.err
			continue
		default:
			r.ready = true
		}
		keep = append(keep, r)
	}
	l.requests = keep
	if slices.ContainsFunc(keep, func(r *request) bool { return !r.ready }) {
		l.source.next = time.Time{}
	}
}

func sameSeats(a, b []seat) bool {
	return slices.EqualFunc(a, b, func(x, y seat) bool {
		return x.Holder == y.Holder && x.Target == y.Target && x.GraceUntil == y.GraceUntil && x.held == y.held && x.plain == y.plain &&
			x.Listed == y.Listed && x.next == y.next && x.waits == y.waits && profileOf(&x.Worker).same(profileOf(&y.Worker))
	})
}

// trouble reports whether the error says that the store was out of reach.
func trouble(err error) bool {
	return kv.IsTimeout(err) || kv.IsUnknown(err) || errors.Is(err, kv.ErrUnavailable) || errors.Is(err, types.ErrPartialListing)
}
