package assignment

import "time"

// Credibility decides when a count that has shrunk sharply, to nothing or by half and more, is believed: only when enough
// observations in a row say so, because a broken source and a lagging replica look just like that. It belongs to one
// goroutine.
type Credibility struct {
	need int // observations in a row
	seen int // suspicious observations so far
}

// NewCredibility returns a Credibility that believes a sharp shrink after so many observations in a row; 1 believes at once.
func NewCredibility(need int) *Credibility { return &Credibility{need: max(1, need)} }

// Observe takes in one observation, where known is the count believed so far, and reports whether it is believed.
func (c *Credibility) Observe(known, n int) bool {
	if !sharp(known, n) {
		c.seen = 0
		return true
	}
	c.seen = min(c.seen+1, c.need)
	return c.seen >= c.need
}

// Believes reports whether the count would be believed without another observation.
func (c *Credibility) Believes(known, n int) bool { return !sharp(known, n) || c.seen >= c.need }

// Reset forgets the suspicious observations: somebody vouches for the count, or it was acted on.
func (c *Credibility) Reset() { c.seen = 0 }

// Suspicious reports whether the last observation was not believed: observe again soon.
func (c *Credibility) Suspicious() bool { return c.seen > 0 && c.seen < c.need }

func sharp(known, n int) bool { return known > 0 && n*2 <= known }

// recovery remembers when the store was last in trouble as seen from here: own writes failed, the feed was cut, a listing failed.
// For one HeartbeatTTL after that a death proves nothing, because the others could not renew either: the last assignment is
// held.
type recovery struct {
	hold time.Duration
	last time.Time
	// began is the first of a row of troubles, each within hold of the one before; last is the last of them.
	began time.Time
}

func (r *recovery) trouble(at time.Time) {
	if at.After(r.last) {
		if r.last.IsZero() || at.Sub(r.last) >= r.hold {
			r.began = at
		}
		r.last = at
	}
}

// until returns the end of the grace; the zero time when it has passed or never began.
func (r *recovery) until(now time.Time) time.Time {
	if end := r.last.Add(r.hold); !r.last.IsZero() && now.Before(end) {
		return end
	}
	return time.Time{}
}
