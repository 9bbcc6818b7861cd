package election

import (
	"context"
	"fmt"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

type requestKind uint8

const (
	commitWrites requestKind = iota
	checkTerm
	barrier // answered when everything asked for before has been done
)

// request is a call that the loop carries out.
type request struct {
	ctx     context.Context
	kind    requestKind
	term    uint64
	version int64
	nonce   string
	writes  []kv.Write
	reply   chan answer // buffered
}

type answer struct {
	revisions []uint64
	err       error
}

// Commit makes the writes and renews the key of the term, whose value then says commitVersion (or a higher one said before), in
// one atomic batch: all or nothing. It returns the new revisions of the writes, in their order. The nonce names the attempt and is not used
// twice; an unknown outcome is found out before Commit returns and before anything else is written. At most kv.MaxBatch - 1 writes fit, none
// to Key.
//
// Errors: types.ErrLeadershipLost: the term is over, or not the present one; nothing was written, or, if the error is also
// types.ErrOutcomeUnknown, that could not be found out while the term could be trusted. types.ErrCommitConflict: a key of
// the writes was not at its expected revision; nothing was written, the term goes on. types.ErrOutcomeUnknown with the error of ctx:
// ctx ended before the answer; the outcome is found out before the next commit is sent, which sees it by its expected
// revisions. Any other error: nothing was written, and the term goes on.
func (e *Elector) Commit(ctx context.Context, term uint64, commitVersion int64, nonce string, writes []kv.Write) ([]uint64, error) {
	if nonce == "" || len(writes) >= kv.MaxBatch {
		return nil, fmt.Errorf("election: a commit needs a nonce and less than %d writes, has nonce %q and %d", kv.MaxBatch, nonce, len(writes))
	}
	for _, w := range writes {
		if w.Key == Key {
			return nil, fmt.Errorf("election: a commit may not write %s itself", Key)
		}
	}
	v, err := e.tenureOf(term)
	if err != nil {
		return nil, err
	}
	return e.ask(ctx, v.over, &request{
		ctx: ctx, kind: commitWrites, term: term, version: commitVersion, nonce: nonce, writes: writes, reply: make(chan answer, 1),
	})
}

// CheckLeadership proves by a renewal that the term is this process's own at some moment during the call. It fails with
// types.ErrLeadershipLost, or with the error of ctx if the proof takes longer.
func (e *Elector) CheckLeadership(ctx context.Context, term uint64) error {
	v, err := e.tenureOf(term)
	if err != nil {
		return err
	}
	_, err = e.ask(ctx, v.over, &request{ctx: ctx, kind: checkTerm, term: term, reply: make(chan answer, 1)})
	return err
}

func (e *Elector) tenureOf(term uint64) (*tenure, error) {
	v := e.present()
	if v == nil || v.Revision != term {
		return nil, notPresent(term)
	}
	return v, nil
}

func notPresent(term uint64) error {
	return fmt.Errorf("%w: term %d is not the present one", types.ErrLeadershipLost, term)
}

// ask hands r to the loop and waits for the answer.
func (e *Elector) ask(ctx context.Context, over <-chan struct{}, r *request) ([]uint64, error) {
	select {
	case e.requests <- r:
	case <-over:
		return nil, notPresent(r.term)
	case <-e.done:
		return nil, types.ErrStopped
	case <-ctx.Done():
		return nil, fmt.Errorf("election: not sent: %w", context.Cause(ctx))
	}
	select {
	case a := <-r.reply:
		return a.revisions, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-r.reply:
		return a.revisions, a.err
	default:
	}
	if r.kind == commitWrites {
		return nil, fmt.Errorf("%w: commit: %w", types.ErrOutcomeUnknown, context.Cause(ctx))
	}
	return nil, fmt.Errorf("election: no answer: %w", context.Cause(ctx))
}

// serve carries a request out. If the term ends by it, whoever asked gets the answer before OnLost, which may wait for them.
func (e *Elector) serve(r *request) {
	e.settleWish()
	h := e.held
	var a answer
	var lost error
	switch {
	case r.kind == barrier:
		e.awaitOrphan(r.ctx)
	case h == nil || h.Revision != r.term || !time.Now().Before(e.timing.trustedUntil(h.sent)):
		a.err = notPresent(r.term)
	case r.ctx.Err() != nil:
		a.err = fmt.Errorf("election: not sent: %w", context.Cause(r.ctx))
	case r.kind == checkTerm:
		_, lost = e.prove(h, nil)
		a.err = lostError(lost)
	default:
		a, lost = e.commit(h, r)
	}
	if lost == nil || lost == errGivenUp { // the next step ends a term that is not wanted
		r.reply <- a
		return
	}
	h = e.retire()
	r.reply <- a
	e.announce(h, lost)
}

// commit sends the batch and finds out what became of it. The second result is why the term cannot go on.
func (e *Elector) commit(h *held, r *request) (answer, error) {
	rec := e.record(h.Holder, h.Revision, h.acquired)
	rec.Nonce, rec.CommitVersion = r.nonce, max(rec.CommitVersion, r.version)
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	sent, expect := time.Now(), h.revision
	revisions, err := call(e, ctx, e.callUntil(h), func(ctx context.Context) ([]uint64, error) {
		return e.key.batch(ctx, rec, expect, r.writes)
	})
	switch {
	case err == nil:
		e.adopt(h, revisions[0], sent, rec)
		return answer{revisions: revisions[1:]}, nil
	case kv.IsConflict(err):
		// Which key it was, only a renewal can tell.
		if _, lost := e.prove(h, nil); lost != nil {
			return answer{err: lostError(lost)}, lost
		}
		return answer{err: fmt.Errorf("%w: %w", types.ErrCommitConflict, err)}, nil
	case !kv.IsUnknown(err):
		return answer{err: fmt.Errorf("election: commit not written: %w", err)}, nil
	}
	landed, lost := e.prove(h, []try{{nonce: r.nonce, sent: sent}})
	switch {
	case lost != nil:
		return answer{err: fmt.Errorf("%w: %w: %w", types.ErrLeadershipLost, types.ErrOutcomeUnknown, lost)}, lost
	case landed != r.nonce:
		return answer{err: fmt.Errorf("election: commit not written, which was found out after: %v", err)}, nil // %v: known by now
	}
	revisions = make([]uint64, len(r.writes))
	for i := range revisions {
		revisions[i] = h.revision + 1 + uint64(i) // a batch is stored in one run, the leader key first
	}
	return answer{revisions: revisions}, nil
}

func lostError(lost error) error {
	if lost == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", types.ErrLeadershipLost, lost)
}
