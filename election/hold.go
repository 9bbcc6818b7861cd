package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// held is the present term. Owned by run.
type held struct {
	Term
	acquired time.Time     // sent the write that acquired it
	sent     time.Time     // sent the last write that proved it
	revision uint64        // of the key; no write is undecided when run waits
	over     chan struct{} // closed when the term ends
	ctx      context.Context
	cancel   context.CancelFunc
}

func (h *held) tenure(t timing) *tenure {
	return &tenure{Term: h.Term, until: t.trustedUntil(h.sent), over: h.over}
}

// try is a write of the key at h.revision that may have landed.
type try struct {
	nonce string
	sent  time.Time
}

var errTrustOver = fmt.Errorf("%w: it could not be proved within the lease", types.ErrLeadershipLost)

// keep renews the term if that is due or urgent, ends it if its trust is over, and returns when something is due again.
func (e *Elector) keep(urgent bool) time.Time {
	h := e.held
	now := time.Now()
	if !now.Before(e.timing.trustedUntil(h.sent)) {
		e.lose(errTrustOver)
		return now
	}
	if urgent || !now.Before(e.timing.renewAt(h.sent)) {
		if _, err := e.prove(h, nil); err != nil {
			if !errors.Is(err, errGivenUp) { // otherwise the next step ends the term
				e.lose(err)
			}
			return now
		}
	}
	return e.timing.renewAt(h.sent)
}

// prove renews the term, and decides on the way which of the tries landed: it returns the nonce of the write that the key
// was found with or was given. All tries, and all its own, expect the present revision, so one of them lands at most, and the
// success of one proves that the others never will. It gives up when the term is seen to be another's, is not wanted, or can
// no longer be trusted.
func (e *Elector) prove(h *held, tries []try) (string, error) {
	wait := backoff.New(10*time.Millisecond, max(e.timing.lease/20, 10*time.Millisecond))
	for read := len(tries) > 0; ; read = true {
		if read {
			if nonce, err := e.readBack(h, tries); nonce != "" || err != nil {
				return nonce, err
			}
		}
		t := try{sent: time.Now()}
		r := e.record(h.Holder, h.Revision, h.acquired)
		t.nonce = r.Nonce
		revision, err := call(e, h.ctx, e.callUntil(h), putAt(e.key, r, h.revision))
		switch {
		case err == nil:
			e.adopt(h, revision, t.sent, r)
			return t.nonce, nil
		case !kv.IsConflict(err):
			tries = append(tries, t)
		}
		e.log.Debug("leader key not renewed", "term", h.Revision, "expected", h.revision, "error", err)
		if err := e.goOn(h, wait.Next()); err != nil {
			return "", err
		}
	}
}

// readBack looks which write the key has now. It returns nothing if the read decides nothing.
func (e *Elector) readBack(h *held, tries []try) (string, error) {
	entry, err := call(e, h.ctx, e.callUntil(h), e.key.get)
	if err != nil || entry.Revision <= h.revision { // stale: what was known is newer
		return "", e.goOn(h, 0)
	}
	e.note(entry, false)
	if entry.Absent() {
		return "", fmt.Errorf("%w: the key was deleted or has expired", types.ErrLeadershipLost)
	}
	r, err := decode(entry)
	if err != nil {
		return "", fmt.Errorf("%w: the key was overwritten: %w", types.ErrLeadershipLost, err)
	}
	for _, t := range tries {
		if r.Nonce == t.nonce && r.Holder == h.Holder {
			e.adopt(h, entry.Revision, t.sent, r)
			return t.nonce, nil
		}
	}
	return "", fmt.Errorf("%w: %s has the key", types.ErrLeadershipLost, r.Holder)
}

// adopt takes in a write that is known to have landed.
func (e *Elector) adopt(h *held, revision uint64, sent time.Time, r record) {
	h.revision = revision
	if sent.After(h.sent) {
		h.sent = sent
	}
	e.mu.Lock()
	e.sight.wrote(revision, &r, time.Now())
	e.version = max(e.version, r.CommitVersion)
	e.mu.Unlock()
	e.view.Store(h.tenure(e.timing))
}

// goOn waits within the term, and says why the term may not go on.
func (e *Elector) goOn(h *held, wait time.Duration) error {
	if left := time.Until(e.timing.trustedUntil(h.sent)); wait > left {
		wait = left
	}
	switch {
	case backoff.Sleep(h.ctx, max(wait, 0)) != nil:
		return errGivenUp
	case !time.Now().Before(e.timing.trustedUntil(h.sent)):
		return errTrustOver
	}
	return nil
}

func (e *Elector) callUntil(h *held) time.Time {
	return e.timing.callUntil(time.Now(), e.timing.trustedUntil(h.sent))
}

// release deletes the key, if it still is the term's, so that the next leader follows at once. Where that fails the key
// expires by itself.
func (e *Elector) release(h *held) {
	end := time.Now().Add(2 * e.timing.request)
	for expect := h.revision; time.Now().Before(end); {
		until := e.timing.callUntil(time.Now(), end)
		revision, err := call(e, e.ctx, until, func(ctx context.Context) (uint64, error) { return e.key.remove(ctx, expect) })
		if err == nil {
			e.mu.Lock()
			e.sight.wrote(revision, nil, time.Now())
			e.mu.Unlock()
			return
		}
		entry, readErr := call(e, e.ctx, e.timing.callUntil(time.Now(), end), e.key.get)
		if readErr == nil && entry.Revision > expect {
			e.note(entry, false)
			r, err := decode(entry)
			if entry.Absent() || err != nil || r.Holder != h.Holder || r.term(entry.Revision) != h.Revision {
				return // released, expired, or another's
			}
			expect = entry.Revision // a write without an answer had landed
			continue
		}
		if backoff.Sleep(e.ctx, maxJitter) != nil {
			break
		}
	}
	e.log.Warn("leader key not released, it will expire", "term", h.Revision, "holder", h.Holder)
}

func putAt(k leaseKey, r record, expect uint64) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) { return k.put(ctx, r, expect) }
}
