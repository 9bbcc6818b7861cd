package assignment

import (
	"slices"
	"time"
)

// mostDamping is the longest damping, in periods.
const mostDamping = 10

// damper holds back workers that come and go: giving one its share moves partitions of others, and all for nothing if it leaves soon.
// The rule: a worker ID to which others' partitions were moved, and that left within the damping period after that, is given nothing
// until the period has passed since. If it leaves soon after that again, the period doubles, up to ten times the first. Who stays
// for a period starts afresh.
//
// Until then the commit lists the worker with nothing, so it is ready, and its leaving moves nothing. It belongs to the loop, and
// a new leader starts without memory.
type damper struct {
	period time.Duration // 0: no damping
	lives  map[string]*life
	damped []string // of the last look, sorted
}

// life is what is remembered of a worker ID.
type life struct {
	listed   bool      // the last decision could give it partitions
	admitted time.Time // when others' partitions were last moved for it; zero: they never were
	period   time.Duration
	until    time.Time // it is given nothing before
}

func newDamper(period time.Duration) *damper {
	return &damper{period: period, lives: make(map[string]*life)}
}

// look takes the targets among the seats that are damped, and says when one will no longer be. Damping yields where it would leave
// fewer than half of the workers, and where partitions are parked that the worker may take.
func (d *damper) look(s *sitting, parked map[string]bool, now time.Time) {
	d.damped = d.damped[:0]
	if d.period <= 0 {
		return
	}
	var held []int
	for i := range s.seats {
		w := &s.seats[i]
		l := d.lives[w.Worker.Worker]
		if w.Target && l != nil && !l.listed && now.Before(l.until) && !mayTake(&w.Worker, parked) {
			held = append(held, i)
		}
	}
	if 2*len(held) > s.targets {
		return
	}
	for _, i := range held {
		w := &s.seats[i]
		w.Target, w.Listed = false, true
		s.targets--
		s.until(d.lives[w.Worker.Worker].until)
		d.damped = append(d.damped, w.Worker.Worker)
	}
}

// decided takes in what a decision made of the seats. moved: it gave partitions of one worker to another.
func (d *damper) decided(seats []seat, moved bool, now time.Time) {
	if d.period <= 0 {
		return
	}
	there := make(map[string]bool, len(seats))
	for i := range seats {
		w := &seats[i]
		id := w.Worker.Worker
		there[id] = w.Target || w.held || w.GraceUntil != 0
		l := d.lives[id]
		if !w.Target || l != nil && l.listed {
			continue
		}
		if l == nil {
			l = &life{}
			d.lives[id] = l
		}
		l.listed = true
		if moved {
			l.admitted = now
		} else {
			l.admitted = time.Time{}
		}
	}
	for id, l := range d.lives {
		switch {
		case l.listed && !there[id]:
			if d.departed(l, now); l.period == 0 {
				delete(d.lives, id)
			}
		case !l.listed && now.After(l.until.Add(mostDamping*d.period)):
			delete(d.lives, id)
		}
	}
}

// departed judges a worker that is a target no more.
func (d *damper) departed(l *life, now time.Time) {
	l.listed = false
	switch stayed := now.Sub(l.admitted); {
	case l.admitted.IsZero():
	case stayed >= max(l.period, d.period):
		l.period = 0
	default:
		l.period = min(max(2*l.period, d.period), mostDamping*d.period)
		l.until = l.admitted.Add(l.period)
	}
}

// evicted damps a worker that is evicted, however long it had stayed: it claims its ID anew within moments, and whatever made it stuck may
// not be over.
func (d *damper) evicted(id string, now time.Time) {
	l := d.lives[id]
	if l == nil {
		l = &life{}
		d.lives[id] = l
	}
	l.listed, l.admitted = false, now
	l.period = min(max(2*l.period, d.period), mostDamping*d.period)
	l.until = now.Add(l.period)
}

// damp holds back those who come and go.
func (l *loop) damp(s *sitting, now time.Time) {
	l.damper.look(s, l.parkedLabels, now)
	if !slices.Equal(l.damped, l.damper.damped) {
		l.damped = slices.Clone(l.damper.damped)
		l.cfg.Logger.Info("workers that come and go are given nothing for now", "workers", l.damped)
		l.cfg.Metrics.WorkersDamped(len(l.damped))
	}
}
