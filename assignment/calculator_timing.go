package assignment

import (
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// coalesce is how long an urgent change waits for others to share its commit.
const coalesce = 20 * time.Millisecond

// change is how the workers to list differ from those that the last commit lists.
type change struct {
	// joined have no place in the commit; relabelled are live, and their labels are not those that were decided on.
	joined, relabelled int
	// left are gone in good order, or entered or left a restart grace; died are dead; returned have another incarnation.
	left, died, returned int
}

func (c change) urgent() bool { return c.left+c.died+c.returned > 0 }

// compare returns how s differs from the committed workers. labels are those decided on last, by holder.
func compare(committed *plan.State, s *sitting, labels map[types.Holder][]string) change {
	c := change{left: len(s.gone), died: len(s.dead)}
	listed := make(map[string]*plan.Slice)
	if committed != nil {
		for i := range committed.Slices {
			listed[committed.Slices[i].Worker] = &committed.Slices[i]
		}
	}
	for i := range s.seats {
		w := &s.seats[i]
		slice := listed[w.Worker.Worker]
		known, decided := labels[w.Holder]
		switch {
		case w.held:
		case slice == nil:
			c.joined++
		case slice.Holder != w.Holder:
			c.returned++
		case slice.GraceUntil != 0 && w.GraceUntil == 0:
			c.returned++
		case slice.GraceUntil != w.GraceUntil:
			c.left++
		case decided && !slices.Equal(known, w.Labels):
			c.relabelled++
		}
	}
	return c
}

// timing decides when a change is acted on. It is given what is true now, at every event, and remembers only since when.
type timing struct {
	cfg *Config

	urgentSince time.Time // an urgent change is pending; zero: none
	windowSince time.Time // a join is pending; zero: none
	quietSince  time.Time // membership has not changed
	lastJoins   time.Time // last commit for joins
	retryAt     time.Time // nothing but a request is acted on before: the last attempt failed
}

// facts are what timing decides on.
type facts struct {
	change
	first      bool // there is no commit
	takeover   bool // a commit was found, and nothing has been decided yet
	lost       bool // the store lost a commit
	partitions bool // the source changed
	strategy   time.Time
	targets    int
}

// decide returns why to act and when; no reason: there is nothing to do. window tells that joins are being collected.
func (t *timing) decide(f facts, now time.Time) (reason string, at time.Time, window bool) {
	since(&t.urgentSince, f.urgent(), now)
	since(&t.windowSince, f.joined+f.relabelled > 0, now)
	if f.targets == 0 {
		return "", time.Time{}, false
	}
	switch {
	case f.died > 0:
		reason, at = types.LifecycleEmergency, t.urgentSince.Add(coalesce)
	case f.left > 0:
		reason, at = types.LifecycleLeave, t.urgentSince.Add(coalesce)
	case f.lost, f.takeover:
		reason, at = types.LifecycleRecovery, now
	case f.returned > 0:
		reason, at = types.LifecycleRecovery, t.urgentSince.Add(coalesce)
	case f.partitions && !f.first:
		reason, at = types.LifecyclePartitions, now
	case f.joined+f.relabelled > 0:
		reason, at, window = types.LifecycleScale, t.windowEnd(f, now), true
		if f.first {
			reason = types.LifecycleColdStart
		}
	case !f.strategy.IsZero():
		reason, at = types.LifecycleRecovery, f.strategy
	default:
		return "", time.Time{}, false
	}
	if at.Before(t.retryAt) {
		at = t.retryAt
	}
	return reason, at, window
}

// windowEnd returns when the joins collected so far are acted on.
func (t *timing) windowEnd(f facts, now time.Time) time.Time {
	window := t.cfg.PlannedScaleWindow
	if f.first {
		window = t.cfg.ColdStartWindow
	}
	end := earlier(t.windowSince.Add(window), later(t.windowSince, t.quietSince).Add(t.cfg.SettleDelay))
	if t.cfg.ExpectedWorkers > 0 && f.targets >= t.cfg.ExpectedWorkers {
		end = now
	}
	if !t.lastJoins.IsZero() {
		end = later(end, t.lastJoins.Add(t.cfg.Cooldown))
	}
	return end
}

func since(t *time.Time, is bool, now time.Time) {
	switch {
	case !is:
		*t = time.Time{}
	case t.IsZero():
		*t = now
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
