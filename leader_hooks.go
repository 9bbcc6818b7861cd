package parti

import (
	"time"

	"github.com/partigo/parti/types"
)

// What follows tells the hooks about the lead. The elector, the calculator and Stop report from goroutines of their own; the mutex makes
// one order of it: elected, then starts and ends of rebalances, then stepping down, then lost.

func (l *leadership) elected(m *Manager, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.leaving = term, nil
	m.call(hook(m.set.hooks.OnElected, Leadership{Term: term}))
}

// stepping tells that the lead, if there is one, is about to be given up. Only the first reason of a term is told.
func (l *leadership) stepping(m *Manager, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == 0 || l.leaving != nil {
		return
	}
	l.leaving = reason
	m.call(hook(m.set.hooks.OnSteppingDown, Leadership{Term: l.term, Reason: reason}))
}

// lost ends the term, and before it a rebalance that is still under way: if its commit has not landed, it never will. cause is nil where the term was
// given up.
func (l *leadership) lost(m *Manager, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cause == nil {
		cause = l.leaving
	}
	if cause == nil { // it was not wanted any more in the moment in which it was won: there was nothing to step down from when that was said
		cause = types.ErrLeadershipLost
	}
	if r := l.rebalance; r != nil {
		r.Took, r.Err = time.Since(l.begun), types.ErrLeadershipLost
		m.call(hook(m.set.hooks.OnRebalanceEnded, *r))
	}
	m.call(hook(m.set.hooks.OnLeadershipLost, Leadership{Term: l.term, Reason: cause}))
	l.term, l.leaving, l.rebalance = 0, nil, nil
}

// started and ended ignore the calculator of a term that is over.
func (l *leadership) started(m *Manager, r Rebalance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == r.Term {
		l.rebalance, l.begun = &r, time.Now()
		m.call(hook(m.set.hooks.OnRebalanceStarted, r))
	}
}

func (l *leadership) ended(m *Manager, r Rebalance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == r.Term && l.rebalance != nil {
		l.rebalance = nil
		m.call(hook(m.set.hooks.OnRebalanceEnded, r))
	}
}
