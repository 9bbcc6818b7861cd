package assignment

import (
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// coalesce is how long an urgent change waits for others to share its commit.
const coalesce = 20 * time.Millisecond

// change is how the workers to list differ from those that the last commit lists.
type change struct {
	// joined have no place in the commit; relabelled are live, and their labels or capacity are not those that were decided on, or
	// they are not damped any more.
	joined, relabelled int
	// left are gone in good order, or entered or left a restart grace; died are dead; returned have another incarnation.
	left, died, returned int
	// graced of the left have entered a restart grace, regained of the returned have come back within theirs.
	graced, regained int
}

// inPlace reports whether nothing has happened but that workers restart, or are back: then nothing is to move, whatever the strategy
// would make of a fleet that lacks them for a moment.
func (c change) inPlace() bool {
	restarts := change{left: c.graced, returned: c.regained, graced: c.graced, regained: c.regained}
	return c == restarts && c.urgent()
}

func (c change) urgent() bool { return c.left+c.died+c.returned > 0 }

// compare returns how s differs from the committed workers. profiles are those decided on last, by holder.
func compare(committed *plan.State, s *sitting, profiles map[types.Holder]profile) change {
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
		known, decided := profiles[w.Holder]
		switch {
		case w.held:
		case slice == nil:
			c.joined++
		case slice.Holder != w.Holder:
			c.returned++
			if slice.GraceUntil != 0 {
				c.regained++
			}
		case slice.GraceUntil != w.GraceUntil && w.GraceUntil == 0:
			c.returned++
			c.regained++
		case slice.GraceUntil != w.GraceUntil:
			c.left++
			c.graced++
		case w.GraceUntil != 0: // its labels are not heard any more
		case decided && !known.same(profileOf(&w.Worker)):
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
	lost        lostPause
}

// facts are what timing decides on.
type facts struct {
	change
	first      bool // there is no commit
	takeover   bool // a commit was found, and nothing has been decided yet
	lost       bool // the store lost a commit
	partitions bool // the source changed
	orders     bool // an operator wants a change
	strategy   time.Time
	ready      int  // targets, and those that stand by
	spill      bool // nobody has carried a label for its grace
	relief     bool // who joins may have what is parked
}

// inPlace reports whether workers restart or are back, and nothing else calls for a decision.
func (f facts) inPlace() bool {
	return f.change.inPlace() && !f.orders && !f.first && !f.takeover && !f.lost && !f.partitions && !f.spill && f.strategy.IsZero()
}

// decide returns why to act and when; no reason: there is nothing to do. window tells that joins are being collected.
func (t *timing) decide(f facts, now time.Time) (reason string, at time.Time, window bool) {
	since(&t.urgentSince, f.urgent(), now)
	since(&t.windowSince, f.joined+f.relabelled > 0, now)
	if f.ready == 0 { // where all that live stand by for workers that are back soon, a commit is due all the same: it has their graces
		return "", time.Time{}, false
	}
	switch {
	case f.died > 0:
		reason, at = types.LifecycleEmergency, t.urgentSince.Add(coalesce)
	case f.left > 0:
		reason, at = types.LifecycleLeave, t.urgentSince.Add(coalesce)
	case f.lost && !now.Before(t.lost.until), f.takeover:
		reason, at = types.LifecycleRecovery, now
	case f.returned > 0:
		reason, at = types.LifecycleRecovery, t.urgentSince.Add(coalesce)
	case f.partitions && !f.first:
		reason, at = types.LifecyclePartitions, now
	case f.spill && !f.first:
		reason, at = types.LifecycleLabels, now
	case f.orders && !f.first:
		reason, at = types.LifecycleManual, now
	case f.joined+f.relabelled > 0:
		reason, at, window = types.LifecycleScale, t.windowEnd(f, now), true
		if f.first {
			reason = types.LifecycleColdStart
		}
	case f.lost: // whatever else there is to do was not held up
		reason, at = types.LifecycleRecovery, t.lost.until
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
	if t.cfg.ExpectedWorkers > 0 && f.ready >= t.cfg.ExpectedWorkers {
		end = now
	}
	if !t.lastJoins.IsZero() && !f.relief { // what is parked waits no longer than others need to join too
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
