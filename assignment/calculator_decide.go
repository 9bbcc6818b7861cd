package assignment

import (
	"slices"
	"time"

	"github.com/partigo/parti/types"
)

// act begins what is to be done now, and shows what is waited for.
func (l *loop) act(s *sitting, now time.Time, until func(time.Time)) {
	if !l.sourceReady(now, until) {
		return
	}
	if l.lostCommit() && !l.scratch && l.checked < l.view.Applied && !now.Before(l.timing.lost.until) {
		// Perhaps only what was read of the store was old.
		l.checked, l.booted = l.view.Applied, false
		l.begin(job{bootstrap: true})
		return
	}
	// Before anything is decided: a new leader that is asked at once must know, too, which labels were spilled before it.
	l.pools.see(&l.source, s.seats, l.committed, now)
	if l.takeManual(s) {
		return
	}
	due, next := l.pools.due(now)
	until(next)
	f := facts{
		change:     compare(l.committed, s, l.profiles),
		first:      l.committed == nil,
		takeover:   l.takeover,
		lost:       l.lostCommit(),
		partitions: l.source.generation != l.generation,
		orders:     l.roster.mandates.generation != l.orderly || s.due(),
		strategy:   l.strategyAt,
		ready:      s.ready(),
		spill:      l.pools.overdue(due),
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
		l.needless(s)
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
	if s.ready() == 0 { // the first who comes makes a commit anyway; what nobody waits for any more must not pile up until then
		l.requests = slices.DeleteFunc(l.requests, func(r *request) bool { return r.ready && r.ctx.Err() != nil })
		return false
	}
	if !ready {
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
		dead: s.dead, left: slices.DeleteFunc(slices.Clone(s.gone), l.ordered),
	}
	j.spilled, _ = l.pools.due(time.Now())
	if l.lostCommit() {
		if j.reissue = l.c.monitor.Suspects(); len(j.reissue) == 0 { // nobody can run anything; the entries are new all the same
			j.reissue = []types.Holder{s.seats[0].Holder}
		}
		l.cfg.Logger.Warn("the store lost a commit; every partition is given out anew", "applied", l.view.Applied, "holders", len(j.reissue))
	}
	if f := l.cfg.OnRebalanceStarted; f != nil {
		f(reason, versionOf(l.committed))
	}
	l.begin(j)
}

// ordered reports whether the worker goes because an operator wants it.
func (l *loop) ordered(worker string) bool {
	m := l.roster.mandates
	_, drains := m.drains[worker]
	slice := l.slice(worker)
	return drains || slice != nil && m.evicted[slice.Holder]
}

func (l *loop) begin(j job) {
	l.running = true
	l.wg.Go(func() { l.jobs <- l.c.do(l.ctx, j) })
}

func sameSeats(a, b []seat) bool {
	return slices.EqualFunc(a, b, func(x, y seat) bool {
		return x.Holder == y.Holder && x.Target == y.Target && x.GraceUntil == y.GraceUntil && x.held == y.held && x.plain == y.plain &&
			x.Listed == y.Listed && x.next == y.next && x.waits == y.waits && profileOf(&x.Worker).same(profileOf(&y.Worker))
	})
}
