package assignment

import "time"

// sourceOrigin is where a list of partitions is from: a revision of the source, where that has one.
type sourceOrigin struct {
	revision   uint64
	revisioned bool
}

func (o sourceOrigin) olderThan(p sourceOrigin) bool {
	return o.revisioned && p.revisioned && o.revision < p.revision
}

// revisions keeps a source's older revisions from replacing newer ones. Reads of a replicated store are answered by any replica, and one that
// lags would take away partitions that were just added. But revisions may go back for good, when the store was made anew or restored from a
// backup: so a lower one is believed when nothing else was seen for patience.
type revisions struct {
	patience time.Duration
	highest  uint64 // seen in this term, or said by the commit that was found
	given    uint64 // revisions up to this one were given up for lower ones
	since    time.Time
	looks    int // in a row that showed lower ones, the first of them at since
}

// raise notes what the last commit says, and reports whether that counts: not if it was given up since.
func (r *revisions) raise(o sourceOrigin) bool {
	if !o.revisioned || o.revision <= r.given {
		return false
	}
	r.highest = max(r.highest, o.revision)
	return true
}

// look takes in what a look at the source showed, and reports whether it is to be taken for an old list.
func (r *revisions) look(o sourceOrigin, now time.Time) bool {
	if !o.revisioned {
		return false
	}
	if o.revision < r.highest {
		if r.looks++; r.looks == 1 {
			r.since = now
		}
		if r.looks < sourceConfirmations || now.Sub(r.since) < r.patience {
			return true
		}
		r.given = max(r.given, r.highest)
	}
	r.highest, r.looks = o.revision, 0
	return false
}
