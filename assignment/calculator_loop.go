package assignment

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/internal/backoff"
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
	sweeps sweeps
	looks  streak // at the source, that failed
	// attempts at a commit that failed. That the last commit was read in between ends no row of them.
	attempts streak
	timing   timing

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
	err        error  // of the last job
	complaint  string // what the owner was told last
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

	pools     labelPools
	restraint *restraint
	heldBack  []string // as last reported
	// standby are the workers beyond MaxWorkers, as last reported.
	standby []string
	audits  audit
	// repaired gets the outcomes of the audit's evictions.
	repaired chan repair

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
			l.source.next, l.source.stale = time.Time{}, l.source.running
		case r := <-l.repaired:
			l.restraint.probation.repaired(r.worker, r.evicted, time.Now())
		case o := <-l.seen:
			l.looked(o)
		case r := <-c.requests:
			l.requested(r)
		case err := <-l.sweeps.done:
			l.sweeps.swept(err)
		case r := <-l.jobs:
			if err := l.finish(r); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		next := l.step(time.Now())
		s := l.status()
		c.status.Store(s)
		l.complain(s.LastError)
		timer.Reset(max(0, time.Until(next)))
	}
}

func (c *Calculator) newLoop(ctx context.Context) *loop {
	return &loop{
		c: c, cfg: &c.cfg, ctx: ctx,
		repaired: make(chan repair), jobs: make(chan jobResult, 1), seen: make(chan lookup, 1),
		roster:        newRoster(&c.cfg, c.monitor.Released),
		source:        newSourceView(&c.cfg),
		sweeps:        newSweeps(),
		timing:        timing{cfg: &c.cfg},
		retry:         backoff.New(firstJobRetry, lastJobRetry),
		strategyRetry: backoff.New(c.cfg.SourceInterval/6, c.cfg.SourceInterval),
		profiles:      make(map[types.Holder]profile),
		pools:         newLabelPools(c.cfg.LabelSpillGrace),
		restraint:     newRestraint(c.cfg.DampingPeriod),
	}
}

// shutDown waits for the monitor, whose calls are bounded.
func (c *Calculator) shutDown() error {
	c.sm.ReturnToIdle()
	return c.monitor.Stop(context.Background())
}

// step does what is due, and returns when something will be due without an event.
func (l *loop) step(now time.Time) time.Time {
	next := now.Add(time.Hour)
	until := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	until(l.release(now))
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
	if l.c.reread.Swap(false) {
		l.booted = false
	}
	if !l.booted {
		if now.Before(l.timing.retryAt) {
			until(l.timing.retryAt)
		} else {
			l.begin(job{bootstrap: true, scratch: l.unreadable >= unreadableAttempts})
		}
		return next
	}
	l.sweep(now, until)
	if !l.sighted(now, until) || !l.orders() {
		return next
	}
	if l.legacy > 0 || l.roster.silentIn(l.view, now) { // it matters when they were heard last, of which routine refreshes say nothing
		l.view = l.c.monitor.Workers()
	}
	s := l.roster.evaluate(l.view, l.committed, now)
	until(s.next)
	l.tellHold(&s, now)
	l.relist(&s, now, until)
	l.restrain(&s, now)
	l.limit(&s)
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
