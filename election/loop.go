package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/types"
)

var (
	// errGivenUp is why a term ends that the process does not want any more.
	errGivenUp = errors.New("election: given up")
	errReset   = fmt.Errorf("%w: the bucket was recreated", types.ErrLeadershipLost)
)

// run owns key, revision and term.
func (e *Elector) run() {
	defer close(e.done)
	defer e.awaitOrphan(context.Background())
	e.silence = silentAt(time.Now(), e.timing.lease)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, stop := e.step()
		if stop {
			return
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-e.wake:
		case r := <-e.requests:
			e.serve(r)
		}
	}
}

// step does what is due and returns when something is due again. It reports true when the process is to stop and holds no term.
func (e *Elector) step() (time.Time, bool) {
	e.settleWish()
	e.mu.Lock()
	w, recheck, contested := e.wish, e.recheck, e.contested
	e.recheck, e.contested = false, false
	e.mu.Unlock()
	switch {
	case w.stop:
		return time.Time{}, true
	case e.held != nil:
		return earliest(e.keep(contested || recheck), e.listen()), false
	case w.candidate:
		return earliest(e.contend(w.holder, recheck), e.listen()), false
	}
	return e.listen(), false
}

// settleWish ends a term that the process does not want, or that a recreated bucket has ended.
func (e *Elector) settleWish() {
	e.mu.Lock()
	w, reset := e.wish, e.reset
	e.reset = false
	e.mu.Unlock()
	if reset {
		e.attempts = attempts{}
		if e.held != nil {
			e.lose(errReset)
		}
	}
	if h := e.held; h != nil && !w.covers(h.Holder) {
		e.lose(errGivenUp)
		e.release(h)
	}
}

// listen calls OnSilence when it is due, and returns when that is next.
func (e *Elector) listen() time.Time {
	e.mu.Lock()
	heard, lease := e.sight.heard, min(e.sight.lease(e.timing.lease), quietLeases*e.timing.lease)
	e.mu.Unlock()
	now := time.Now()
	if at := silentAt(heard, lease); !heard.IsZero() && at.After(now) {
		e.silence = at
	}
	if !now.Before(e.silence) {
		e.silence = silentAt(now, lease)
		e.cfg.OnSilence()
	}
	return e.silence
}

// lose ends the term: first for everybody who asks, then by the callback.
func (e *Elector) lose(cause error) {
	h := e.retire()
	e.announce(h, cause)
}

func (e *Elector) retire() *held {
	h := e.held
	e.held, e.former = nil, h.Holder
	e.view.Store(nil)
	h.cancel()
	close(h.over)
	s := e.current()
	e.attempts = attempts{known: s.known, basis: s.revision, look: true} // what is known may be old: look before the next attempt
	e.retry.Reset()
	return h
}

func (e *Elector) announce(h *held, cause error) {
	if errors.Is(cause, errGivenUp) {
		cause = nil
		e.log.Info("leadership given up", "term", h.Revision, "holder", h.Holder)
	} else {
		e.log.Warn("leadership lost", "term", h.Revision, "holder", h.Holder, "error", cause)
	}
	e.cfg.OnLost(h.Term, cause)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
