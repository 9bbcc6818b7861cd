package assignment

import (
	"slices"
	"time"
)

// strandedAfter is how many grace periods the detector remembers a missing worker that nobody counts on any more.
const strandedAfter = 10

// EmergencyDetector holds back deaths that were only inferred: a worker has to be missing without a break for the grace period.
// Deaths that the server announced do not come here; the lease was their grace.
//
// Its invariant is that a worker's firstSeen is the moment since which it has been absent from every observation, so each
// observation has to be shown to it. It belongs to one goroutine.
type EmergencyDetector struct {
	grace     time.Duration
	firstSeen map[string]time.Time
}

// NewEmergencyDetector returns a detector with the given grace; 0 confirms at once.
func NewEmergencyDetector(grace time.Duration) *EmergencyDetector {
	return &EmergencyDetector{grace: grace, firstSeen: make(map[string]time.Time)}
}

// ObserveAlive tells that these workers were seen alive: a later absence starts a new grace.
func (d *EmergencyDetector) ObserveAlive(alive []string) {
	for _, id := range alive {
		delete(d.firstSeen, id)
	}
}

// CheckEmergency compares those who were counted on with those who are seen alive now. It returns, sorted, the workers that have
// been missing for the grace period, and whether others are missing and may still come back.
func (d *EmergencyDetector) CheckEmergency(prev, curr map[string]bool) (confirmed []string, pending bool) {
	now := time.Now()
	for id := range curr {
		delete(d.firstSeen, id)
	}
	for id := range prev {
		if _, tracked := d.firstSeen[id]; !tracked && !curr[id] {
			d.firstSeen[id] = now
		}
	}
	for id, since := range d.firstSeen {
		missing := now.Sub(since)
		switch {
		case !prev[id]:
			if missing >= strandedAfter*d.grace {
				delete(d.firstSeen, id)
			}
		case missing >= d.grace:
			confirmed = append(confirmed, id)
		default:
			pending = true
		}
	}
	slices.Sort(confirmed)
	return confirmed, pending
}

// deadline returns when the missing worker will have been missing for the grace period.
func (d *EmergencyDetector) deadline(id string) time.Time { return d.firstSeen[id].Add(d.grace) }
