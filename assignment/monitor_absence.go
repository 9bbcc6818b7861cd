package assignment

import (
	"time"

	"github.com/partigo/parti/types"
)

// absences is what rule (c) of the handoff rests on: since when keys are gone without an announcement, on this process's own clock. It is
// part of the ledger.
//
// Without it a holder whose marker has aged out before anybody looked would stay in `from` for ever, and every later owner would wait one
// HeartbeatTTL for it.
type absences struct {
	ttl time.Duration // HeartbeatTTL; 0: nothing is proved by an absence
	// gone has since when the view has had no entry under an ID under which it had one. An older absence than the one listing that proofs
	// refer to needs no note.
	gone map[string]time.Time
	// past are complete listings, oldest first, at some distance from each other: the newest that is a TTL old, and those after it.
	past []pastListing
}

// pastListing is when a complete listing was taken in, and the highest version that it showed as applied: all that it shows was so after
// that version had been published.
type pastListing struct {
	at      time.Time
	applied int64
}

func newAbsences() absences { return absences{gone: make(map[string]time.Time)} }

// note takes in that the view has no entry under the ID any more.
func (a *absences) note(id string, now time.Time) {
	if a.ttl > 0 {
		a.gone[id] = now
	}
}

// listed takes in a complete listing.
func (a *absences) listed(applied int64, now time.Time) {
	if n := len(a.past); n == 0 || now.Sub(a.past[n-1].at) >= a.ttl/8 {
		a.past = append(a.past, pastListing{now, applied})
	}
	for len(a.past) > 1 && now.Sub(a.past[1].at) >= a.ttl {
		a.past = a.past[1:]
	}
	then, ok := a.proof(now)
	for id, since := range a.gone {
		if ok && !since.After(then.at) {
			delete(a.gone, id)
		}
	}
}

// restart: it is another bucket, in which everything is gone since now.
func (a *absences) restart() {
	a.past = nil
	clear(a.gone)
}

// proof returns the newest listing that is a TTL old: what was gone then, and has been since, is proved to have ended.
func (a *absences) proof(now time.Time) (pastListing, bool) {
	if a.ttl <= 0 || len(a.past) == 0 || now.Sub(a.past[0].at) < a.ttl {
		return pastListing{}, false
	}
	return a.past[0], true
}

// aged is rule (c): the holder's key has been gone without an announcement, or another's who claimed over nothing, for one HeartbeatTTL on
// this process's own clock. As with rule (b) the observation must not predate the holder, see superseded; here it is the listing that
// the time counts from.
func (l *ledger) aged(h types.Holder, known bool, version int64) bool {
	then, ok := l.absences.proof(time.Now())
	if !ok || !known && then.applied < version {
		return false
	}
	r := l.records[h.Worker]
	if r == nil {
		since, noted := l.absences.gone[h.Worker]
		return !noted || !since.After(then.at)
	}
	if !r.listed || r.member.Unreadable || r.since.After(then.at) {
		return false
	}
	return r.presence != alive || r.member.Holder() != h && !r.member.Plain()
}
