package election

import (
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// sighting is the newest state of the key that this process knows of, from the live subject, its reads, and its own writes.
// It is a hint: what is done because of it is guarded by a revision. The zero value knows nothing.
type sighting struct {
	known    bool
	revision uint64
	absent   bool   // a marker, or nothing, at revision
	garbage  bool   // a value that is no leader's
	record   record // zero where absent or garbage

	seen  time.Time // when revision was first known
	heard time.Time // when something new last came from outside, by Observe; own reads and writes do not count
	echo  uint64    // the newest revision that came from outside
}

// observe takes in an entry and reports whether it is news. An older one than what is known is a stale read and ignored, unless
// nothing newer came for a lease: then revisions have started again, in a recreated bucket or after a loss.
func (s *sighting) observe(e kv.Entry, outside bool, now time.Time, lease time.Duration) bool {
	older := s.known && e.Revision < s.revision
	if older && now.Before(silentAt(s.seen, s.lease(lease))) {
		return false
	}
	if outside && (older || e.Revision > s.echo) || s.heard.IsZero() {
		s.echo, s.heard = e.Revision, now
	}
	if s.known && e.Revision == s.revision {
		return false
	}
	s.known, s.revision, s.absent, s.seen = true, e.Revision, e.Absent(), now
	s.record, s.garbage = record{}, false
	if !s.absent {
		r, err := decode(e)
		s.record, s.garbage = r, err != nil
	}
	return true
}

// wrote takes in an own write of r, or of a marker where r is nil.
func (s *sighting) wrote(revision uint64, r *record, now time.Time) {
	if s.known && revision == s.revision {
		return // the echo was faster
	}
	s.known, s.revision, s.absent, s.garbage, s.record, s.seen = true, revision, r == nil, false, record{}, now
	if r != nil {
		s.record = *r
	}
}

// led reports whether the key is known to have a leader's value.
func (s *sighting) led() bool { return s.known && !s.absent && !s.garbage }

// heldBy reports whether the key has a value written by that life of a worker.
func (s *sighting) heldBy(h types.Holder) bool { return s.led() && s.record.Holder == h }

// lease returns the lease under which the key was written, or def, the own one, where that is unknown. One that claims much more than the
// own lease is not taken at its word.
func (s *sighting) lease(def time.Duration) time.Duration {
	if s.record.LeaseSeconds == 0 {
		return def
	}
	return min(s.record.lease(), mostLeases*def)
}

func (s *sighting) info() (Info, bool) {
	if !s.led() {
		return Info{}, false
	}
	return Info{Holder: s.record.Holder, Revision: s.record.term(s.revision), CommitVersion: s.record.CommitVersion, SeenAt: s.heard}, true
}
