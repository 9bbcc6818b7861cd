package assignment

import (
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
)

// evictionHold is for how long a worker that the audit evicted is given nothing. It doubles up to ten times as long if the same ID is
// evicted again, and starts afresh when it was not for twice the longest hold.
const evictionHold = time.Minute

// restraint decides who is given nothing for now, because it comes and goes or was evicted for not following. The commit lists such a
// worker with nothing: so it is ready, and its leaving moves nothing.
//
// It belongs to the loop, and lives for one term.
type restraint struct {
	damper    *damper
	probation probation
	inherited bool
	held      []string // of the last look, sorted
}

func newRestraint(damping time.Duration) *restraint {
	return &restraint{damper: newDamper(damping), probation: make(probation)}
}

// look takes the targets among the seats that are held back, and says when one will no longer be. It yields where it would leave fewer
// than half of the workers, where partitions are parked that the worker may take, and for the only ones that carry a wanted label.
func (r *restraint) look(s *sitting, parked map[string]bool, wanted []string, now time.Time) {
	r.held = r.held[:0]
	ends := make(map[int]time.Time)
	for i := range s.seats {
		w := &s.seats[i]
		if !w.Target || mayTake(&w.Worker, parked) {
			continue
		}
		until, damped := r.damper.until(w.Worker.Worker, now)
		evicted, watched := r.probation.until(&w.Worker, now)
		if damped || watched {
			ends[i] = later(until, evicted)
		}
	}
	for _, label := range wanted {
		free := func(i int) bool { _, held := ends[i]; return !held }
		if carry := carriers(s.seats, label); !slices.ContainsFunc(carry, free) {
			for _, i := range carry {
				delete(ends, i)
			}
		}
	}
	if 2*len(ends) > s.targets {
		return
	}
	for i, end := range ends {
		w := &s.seats[i]
		w.Target, w.Listed = false, true
		s.targets--
		s.until(end)
		r.held = append(r.held, w.Worker.Worker)
	}
	slices.Sort(r.held)
}

// carriers returns the places of the targets that carry the label.
func carriers(seats []seat, label string) (places []int) {
	for i := range seats {
		if seats[i].Target && slices.Contains(seats[i].Labels, label) {
			places = append(places, i)
		}
	}
	return places
}

// decided takes in a decision.
func (r *restraint) decided(v verdict, now time.Time) {
	r.damper.decided(v, now)
	r.probation.decided(v.seats, now)
}

// inherit takes over what the commit tells of a former leader's restraint; it does so once in a term, before the first look.
//
// A worker that the commit lists under its present incarnation with nothing, while one with the same labels has two partitions or more,
// was held back: any strategy that balances gives it one. For how long is not known, so it is held back for one period from now. Not so
// one with a bound on what it takes, nor one that excused names: somebody may have wanted it to have nothing. nil: that is so of all.
func (r *restraint) inherit(s *sitting, committed *plan.State, excused func(worker string) bool, now time.Time) {
	if r.inherited {
		return
	}
	r.inherited = true
	if committed == nil {
		return
	}
	listed := make(map[string]*plan.Slice, len(committed.Slices))
	for i := range committed.Slices {
		listed[committed.Slices[i].Worker] = &committed.Slices[i]
	}
	for i := range s.seats {
		w := &s.seats[i]
		slice := listed[w.Worker.Worker]
		if slice == nil || !w.Target {
			continue
		}
		if excused != nil && !excused(w.Worker.Worker) && heldBack(w, slice, s.seats, listed) {
			r.found(w.Worker.Worker, now)
		} else if r.damper.period > 0 {
			r.damper.lives[w.Worker.Worker] = &life{listed: true}
		}
	}
}

// heldBack reports whether a former leader gave the worker nothing although there was something to give.
func heldBack(w *seat, slice *plan.Slice, seats []seat, listed map[string]*plan.Slice) bool {
	if slice.Holder != w.Holder || len(slice.Entries) > 0 || w.Capacity.Limited() {
		return false
	}
	return slices.ContainsFunc(seats, func(o seat) bool {
		other := listed[o.Worker.Worker]
		return o.Target && other != nil && len(other.Entries) > 1 && slices.Equal(o.Labels, w.Labels)
	})
}

// found holds the ID back as a former leader did.
func (r *restraint) found(id string, now time.Time) {
	if period := r.damper.period; period > 0 {
		r.damper.lives[id] = &life{period: period, until: now.Add(period)}
		return
	}
	r.probation[id] = &suspect{hold: evictionHold, until: now.Add(evictionHold)}
}

// probation has the workers that the audit evicted, by ID. They claim their ID anew within moments, and whatever made them stuck may not
// be over, so what they had goes to others first.
type probation map[string]*suspect

type suspect struct {
	incarnation string // the one that is or was evicted
	hold        time.Duration
	until       time.Time
	before      *suspect // what was known, should the eviction fail
}

// until returns until when the worker is given nothing; false: it is not on probation. The incarnation that is being evicted is not: it
// keeps what it has until its key is gone.
func (p probation) until(w *plan.Worker, now time.Time) (time.Time, bool) {
	x := p[w.Worker]
	if x == nil || x.incarnation == w.Incarnation || !now.Before(x.until) {
		return time.Time{}, false
	}
	return x.until, true
}

// evict begins the probation of the worker's next incarnation, before its key is deleted, so that the new claim cannot be seen first.
func (p probation) evict(id, incarnation string, now time.Time) {
	x := &suspect{incarnation: incarnation, hold: evictionHold, before: p[id]}
	if x.before != nil {
		x.hold = min(2*x.before.hold, mostDamping*evictionHold)
	}
	x.until = now.Add(x.hold)
	p[id] = x
}

// repaired tells how an eviction ended: the hold counts from now, or the worker was not evicted.
func (p probation) repaired(id string, evicted bool, now time.Time) {
	x := p[id]
	switch {
	case x == nil:
	case evicted:
		x.until, x.before = now.Add(x.hold), nil
	case x.before != nil:
		p[id] = x.before
	default:
		delete(p, id)
	}
}

// decided ends the probation of those that were given something all the same, and forgets what is long ago.
func (p probation) decided(seats []seat, now time.Time) {
	for i := range seats {
		w := &seats[i]
		if x := p[w.Worker.Worker]; x != nil && w.Target && x.incarnation != w.Incarnation && now.Before(x.until) {
			x.until = now
		}
	}
	for id, x := range p {
		if now.After(x.until.Add(2 * mostDamping * evictionHold)) {
			delete(p, id)
		}
	}
}

// restrain holds back those who come and go, or were evicted.
func (l *loop) restrain(s *sitting, now time.Time) {
	excused := func(worker string) bool { return l.pile.undrained[worker] }
	if l.cfg.MaxWorkers > 0 { // who stands by has nothing either
		excused = nil
	}
	l.restraint.inherit(s, l.committed, excused, now)
	l.restraint.look(s, l.parkedLabels, l.pools.wanted, now)
	if !slices.Equal(l.heldBack, l.restraint.held) {
		l.heldBack = slices.Clone(l.restraint.held)
		l.cfg.Logger.Info("workers that come and go, or did not follow, are given nothing for now", "workers", l.heldBack)
		l.cfg.Metrics.WorkersDamped(len(l.heldBack))
	}
}
