package assignment

import "time"

// mostDamping is the longest damping, in periods.
const mostDamping = 10

// damper finds the workers that come and go: giving one its share moves partitions of others, and all for nothing if it is gone soon.
//
// What counts is a life under one ID that began with an admission, a decision that moved partitions of others to it which could have
// stayed, and that ended within the damping period after that. If such a life ends by a death (an expiry, or a key that vanished),
// the ID is given nothing until the period has passed since the admission. If that happens to the next life too, the period doubles, up to
// ten times the first. Who stays for the period starts afresh.
//
// A departure in good order counts only if the life before was as short: one restart, also of the whole fleet, is an operation, and
// several within a period are flapping. Never counted are a drain, an eviction by an operator, a stop with a restart grace, a
// return in place, and a death of somebody for whom nobody gave anything up.
//
// A new leader takes everybody whom the commit lists for somebody who has been there for long; only the ends of lives whose admission
// it has made itself count. It goes on holding back those that it finds held back, see restraint.inherit. The doubling starts anew.
//
// It belongs to the loop.
type damper struct {
	period time.Duration // 0: no damping
	lives  map[string]*life
}

// life is what is remembered of a worker ID.
type life struct {
	listed   bool      // the last decision could give it partitions
	admitted time.Time // when others gave up partitions for this life; zero: they never did
	hasty    bool      // the life before ended in good order, and as soon
	period   time.Duration
	until    time.Time // it is given nothing before
}

func newDamper(period time.Duration) *damper {
	return &damper{period: period, lives: make(map[string]*life)}
}

// until returns until when the ID is damped; false: it is not.
func (d *damper) until(id string, now time.Time) (time.Time, bool) {
	l := d.lives[id]
	if l == nil || l.listed || !now.Before(l.until) {
		return time.Time{}, false
	}
	return l.until, true
}

// verdict is what a decision made of the workers.
type verdict struct {
	seats []seat
	// ended says of workers that the decision left out how they went; true: they died.
	ended map[string]bool
	// gained are the workers to which it moved partitions that could have stayed with others.
	gained map[string]bool
}

// verdictOf says who died, and who left of its own will or an operator's.
func verdictOf(seats []seat, dead, gone []string, gained map[string]bool) verdict {
	v := verdict{seats: seats, gained: gained, ended: make(map[string]bool, len(dead)+len(gone))}
	for _, id := range gone {
		v.ended[id] = false
	}
	for _, id := range dead {
		v.ended[id] = true
	}
	return v
}

// decided takes in a decision.
func (d *damper) decided(v verdict, now time.Time) {
	if d.period <= 0 {
		return
	}
	there := make(map[string]bool, len(v.seats))
	for i := range v.seats {
		w := &v.seats[i]
		id := w.Worker.Worker
		l := d.lives[id]
		switch {
		case w.held:
			there[id] = true
		case w.GraceUntil != 0:
			if there[id] = true; l != nil { // it has said so: what follows is no flapping
				l.admitted, l.hasty = time.Time{}, false
			}
		case w.Target:
			there[id] = true
			d.admit(id, v.gained[id], now)
		}
	}
	for id, l := range d.lives {
		died, ended := v.ended[id]
		switch {
		case l.listed && !there[id]:
			if l.end(d.period, ended, died, now); l.period == 0 && !l.hasty {
				delete(d.lives, id)
			}
		case !l.listed && now.After(later(l.until, l.admitted).Add(mostDamping*d.period)):
			delete(d.lives, id)
		}
	}
}

// admit notes that the ID is a target from now on, if it was not.
func (d *damper) admit(id string, gained bool, now time.Time) {
	l := d.lives[id]
	if l == nil {
		l = &life{}
		d.lives[id] = l
	}
	if l.listed {
		return
	}
	l.listed, l.admitted = true, time.Time{}
	if gained {
		l.admitted = now
	}
}

// end judges a life that is over, by a death or a departure, or that is a target no more, because it is drained.
func (l *life) end(period time.Duration, ended, died bool, now time.Time) {
	l.listed = false
	hasty := l.hasty
	l.hasty = false
	switch {
	case !ended, l.admitted.IsZero():
	case now.Sub(l.admitted) >= max(l.period, period):
		l.period = 0
	case died || hasty || l.period > 0:
		l.hasty = true
		l.period = min(max(2*l.period, period), mostDamping*period)
		l.until = l.admitted.Add(l.period)
	default:
		l.hasty = true
	}
}
