package assignment

import (
	"fmt"
	"time"
)

// Hold is what a calculator does not act on because the store was in trouble lately, as seen from here. A single trouble holds it for one
// HeartbeatTTL. Where they come again and again, as with a bad link of the leader's own, nothing ends that but another leader, who may see none.
type Hold struct {
	// Workers are committed ones that are missing and waited for. Source: a change of the partitions waits.
	Workers int
	Source  bool
	// Since and Last are the first and the last of a row of troubles, each within a HeartbeatTTL of the one before. Zero: the row is over, and
	// whatever was held is acted on.
	Since, Last time.Time
}

// Any reports whether something is held.
func (h Hold) Any() bool { return h.Workers > 0 || h.Source }

// String names what is held.
func (h Hold) String() string {
	workers, source := fmt.Sprintf("%d missing workers", h.Workers), "a change of the source"
	if h.Workers == 1 {
		workers = "one missing worker"
	}
	switch {
	case h.Workers > 0 && h.Source:
		return workers + " and " + source
	case h.Source:
		return source
	}
	return workers
}

// tellHold tells the owner what is held.
func (l *loop) tellHold(s *sitting, now time.Time) {
	if l.cfg.OnHold == nil {
		return
	}
	var h Hold
	if r := &l.roster.recovery; !r.until(now).IsZero() {
		h = Hold{Workers: s.held, Source: l.source.deferred != nil, Since: r.began, Last: r.last}
	}
	l.cfg.OnHold(h)
}
