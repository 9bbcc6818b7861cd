package election

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/partigo/parti/types"
)

// attempts is what a candidate remembers between its attempts. Owned by run.
type attempts struct {
	known     bool      // whether basis means anything
	basis     uint64    // the revision that the following refers to; news of the key start over
	from      time.Time // not before: spreads the candidates that hear of one marker
	notBefore time.Time // not before: an attempt failed
	look      bool      // read before the next attempt, and do it now
}

// contend tries to acquire the key if that is due, and returns when it is due again.
func (e *Elector) contend(h types.Holder, recheck bool) time.Time {
	now := time.Now()
	s := e.current()
	a := &e.attempts
	if s.known != a.known || s.revision != a.basis {
		*a = attempts{known: s.known, basis: s.revision}
		e.retry.Reset()
		if s.known && s.absent {
			a.from = now.Add(jitter())
		}
	}
	if recheck {
		a.look, a.notBefore = true, now.Add(jitter())
		e.retry.Reset()
	}
	if at := e.due(&s, h); now.Before(at) {
		return at
	}
	if e.free(&s, h) && !a.look {
		return e.acquire(h, s.revision)
	}
	entry, err := call(e, e.ctx, now.Add(e.timing.request), e.key.get)
	if err != nil {
		e.log.Debug("leader key cannot be read", "error", err)
		return e.backOff()
	}
	a.look = false
	if e.note(entry, false) {
		return time.Now() // decide on what is new
	}
	abandoned := !time.Now().Before(abandonedAt(s.seen, s.lease(e.timing.lease)))
	if entry.Revision == s.revision && (e.free(&s, h) || abandoned) {
		return e.acquire(h, s.revision)
	}
	return e.backOff()
}

// free reports whether the key may be acquired at once: nobody has it, or a life of this process that leads no more.
func (e *Elector) free(s *sighting, h types.Holder) bool {
	return s.known && s.absent || s.heldBy(h) || s.heldBy(e.former)
}

// due returns when the next attempt is.
func (e *Elector) due(s *sighting, h types.Holder) time.Time {
	a := &e.attempts
	at := a.notBefore
	if a.from.After(at) {
		at = a.from
	}
	if s.known && !a.look && !e.free(s, h) {
		if silent := silentAt(s.seen, s.lease(e.timing.lease)); silent.After(at) {
			at = silent
		}
	}
	return at
}

// backOff returns when the next attempt may be, after one that led to nothing.
func (e *Elector) backOff() time.Time {
	e.attempts.notBefore = time.Now().Add(e.retry.Next())
	return e.attempts.notBefore
}

// acquire tries to make a term by a write over revision expect. An unknown outcome is found out by the read before the next
// attempt: a value of this process is free to be replaced, which makes a term of its own.
func (e *Elector) acquire(h types.Holder, expect uint64) time.Time {
	sent := time.Now()
	r := e.record(h, 0, sent)
	revision, err := call(e, e.ctx, sent.Add(e.timing.request), putAt(e.key, r, expect))
	if err != nil {
		e.log.Debug("leader key not acquired", "expected", expect, "error", err)
		e.attempts.look = true
		return e.backOff()
	}
	n := &held{Term: Term{Revision: revision, Holder: h}, acquired: sent, revision: revision, sent: sent, over: make(chan struct{})}
	e.elect(n, r)
	return time.Now()
}

// elect begins the term, unless it is not wanted any more or the answer took too long.
func (e *Elector) elect(n *held, r record) {
	now := time.Now()
	if !now.Before(e.timing.trustedUntil(n.sent)) {
		e.attempts.look = true
		return
	}
	n.ctx, n.cancel = context.WithCancel(e.ctx)
	e.mu.Lock()
	e.sight.wrote(n.revision, &r, now)
	e.contested = false
	wanted := e.wish.covers(n.Holder) && !e.reset
	if wanted {
		e.abort = n.cancel
		e.view.Store(n.tenure(e.timing))
	}
	e.mu.Unlock()
	if !wanted {
		n.cancel()
		e.release(n)
		return
	}
	e.held = n
	e.log.Info("elected leader", "term", n.Revision, "holder", n.Holder)
	e.cfg.OnElected(n.Term)
}

// record is what the next write of the key says.
func (e *Elector) record(h types.Holder, term uint64, acquired time.Time) record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return record{
		Holder: h, Term: term, AcquiredAt: acquired.UTC(), LeaseSeconds: int64(e.timing.lease / time.Second),
		CommitVersion: e.version, Nonce: uuid.NewString(),
	}
}

func (e *Elector) current() sighting {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sight
}

func jitter() time.Duration { return rand.N(maxJitter) }
