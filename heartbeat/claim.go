package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// claim takes the worker's key under a new incarnation. It goes on until it has one; the error says that the loop is to end.
func (p *Publisher) claim() error {
	retry := backoff.New(20*time.Millisecond, p.cfg.Timing.Interval)
	rival := rivalry{}
	for {
		var err error
		if p.id == "" {
			err = p.claimPooled(&rival)
		} else {
			err = p.claimGiven(&rival)
			if p.cfg.ID == "" && p.id != "" && (errors.Is(err, errWaiting) || errors.Is(err, types.ErrWorkerIDTaken)) {
				p.id, rival = "", rivalry{} // a pooled ID that another process has got meanwhile: take another
				continue
			}
		}
		p.report(err)
		if err == nil {
			return nil
		}
		wait := time.NewTimer(retry.Next())
		select {
		case <-wait.C:
		case <-p.seen: // the key changed hands or ended: look again
			wait.Stop()
		case <-p.leave:
			wait.Stop()
			return types.ErrStopped
		case <-p.ctx.Done():
			wait.Stop()
			return p.ctx.Err()
		}
	}
}

// rivalry is what is known about another holder of a given ID.
type rivalry struct {
	last    kv.Entry  // the newest that was read; zero: nothing was
	renewed bool      // the holder has written the key again while this process waited: it lives
	since   time.Time // when this process first read last, or something older after it
	missing time.Time // since when the key is gone without a proof that its holder is, by the marker at revision gone
	gone    uint64
}

// errWaiting: the ID is not free yet, and may become so.
var errWaiting = errors.New("heartbeat: waiting for the worker ID to become free")

// IsWaiting reports whether a claim failed because the ID is not free, which says nothing about the store.
func IsWaiting(err error) bool {
	return errors.Is(err, errWaiting) || errors.Is(err, types.ErrWorkerIDTaken)
}

// claimGiven tries once to claim the worker's own ID.
func (p *Publisher) claimGiven(r *rivalry) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timing.RequestTimeout)
	defer cancel()
	e, err := p.cfg.Store.Get(ctx, KeyPrefix+p.id)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	over, free := p.claimable(e, err == nil)
	if free && over == types.ClaimedNothing {
		lost, err := p.mayHaveLostKeys(ctx, e)
		if err != nil {
			return err
		}
		if lost && !r.goneFor(p.cfg.Timing.TTL, e.Revision) {
			return fmt.Errorf("%w: the key of %q is missing without an expiry; waiting one HeartbeatTTL (%v)", errWaiting, p.id, p.cfg.Timing.TTL)
		}
	}
	if !free {
		r.missing = time.Time{}
		if err := r.judge(p.id, e); !r.ranOut(e, p.cfg.Timing.TTL) {
			return err
		}
		over = types.ClaimedExpiry
	}
	return p.take(ctx, p.id, over, e.Revision)
}

// claimable says whether the ID may be claimed over the entry, and what that is.
func (p *Publisher) claimable(e kv.Entry, found bool) (types.ClaimedOver, bool) {
	switch {
	case found && e.Op == kv.Delete && e.Revision == p.deleted:
		return types.ClaimedOwn, true
	case !found, e.Op == kv.Delete:
		return types.ClaimedNothing, true
	case e.Op == kv.Expire:
		return types.ClaimedExpiry, true
	}
	h, err := types.DecodeHeartbeat(e.Key[len(KeyPrefix):], e.Value)
	switch {
	case err != nil:
		return "", false
	case h.State == types.WorkerLeft && len(h.Unreturned) == 0:
		return types.ClaimedLeft, true
	case h.State == types.WorkerRestarting && len(h.Unreturned) == 0:
		return types.ClaimedRestarting, true
	case p.former[h.Incarnation]:
		return types.ClaimedOwn, true
	}
	return "", false
}

// mayHaveLostKeys reports whether a key that is not there may have been lost rather than never written: an operator deleted
// it, or the bucket is younger than the commit beside it, or another one than this process had its key in.
func (p *Publisher) mayHaveLostKeys(ctx context.Context, e kv.Entry) (bool, error) {
	if e.Op == kv.Delete || p.bucketLost {
		return true, nil
	}
	commit, err := p.cfg.CommitCreated(ctx)
	if err != nil || commit.IsZero() {
		return false, err
	}
	created, err := p.cfg.Store.Identity(ctx)
	return created.After(commit), err
}

// goneFor reports whether the key has been missing for d on this process's own clock, with the same marker, whose revision is given; 0: with
// none.
func (r *rivalry) goneFor(d time.Duration, revision uint64) bool {
	if r.missing.IsZero() || r.gone != revision {
		r.missing, r.gone = time.Now(), revision
	}
	return time.Since(r.missing) >= d
}

// judge tells a holder that lives from one whose key is only not over yet. It goes by the write, not by what was written: each heartbeat of a plain
// worker may be the same text. The time of the write tells two buckets apart, whose revisions may be the same.
func (r *rivalry) judge(id string, e kv.Entry) error {
	h, err := types.DecodeHeartbeat(id, e.Value)
	if err != nil {
		return fmt.Errorf("%w: %q: the key holds what is no heartbeat: %w", types.ErrWorkerIDTaken, id, err)
	}
	switch {
	case e.Revision > r.last.Revision, e.Created.After(r.last.Created):
		r.renewed = r.renewed || r.last.Revision != 0
		r.last, r.since = e, time.Now()
	case e.Revision != r.last.Revision || !e.Created.Equal(r.last.Created):
		r.since = time.Now() // older: a replica that lags, which says nothing of the holder
	}
	holder := fmt.Sprintf("incarnation %s", h.Incarnation)
	if h.Plain() {
		holder = "a plain worker"
	}
	if r.renewed {
		return fmt.Errorf("%w: %q is held by %s, which renewed it at %s: give every process its own ID",
			types.ErrWorkerIDTaken, id, holder, e.Created.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%w: %q is held by %s, last renewed at %s", errWaiting, id, holder, e.Created.UTC().Format(time.RFC3339))
}

// ranOut reports whether the key was not written for one HeartbeatTTL, which is its holder's lease. One that was written without a TTL, as plain
// workers may, or before the server's clock was set back, does not expire in time. One that is renewed meanwhile is at another revision, at which
// the claim is refused.
func (r *rivalry) ranOut(e kv.Entry, ttl time.Duration) bool {
	_, err := types.DecodeHeartbeat(e.Key[len(KeyPrefix):], e.Value)
	return err == nil && !r.since.IsZero() && time.Since(r.since) >= ttl
}

// take writes the claim over the entry at the given revision.
func (p *Publisher) take(ctx context.Context, id string, over types.ClaimedOver, revision uint64) error {
	p.holder = types.Holder{Worker: id, Incarnation: uuid.NewString()}
	p.id, p.over, p.revision = id, over, revision
	h := types.Heartbeat{
		WorkerID: id, Incarnation: p.holder.Incarnation, SchemaVersion: types.HeartbeatSchema,
		ClaimedOver: over, Nonce: uuid.NewString(), Timestamp: time.Now().UTC(),
	}
	p.cfg.Compose(&h)                                      // says false, as there is no incarnation yet
	h.AppliedVersion, h.Unreturned, h.Draining = 0, nil, 0 // nothing of an earlier incarnation
	if h.State != types.WorkerCoordinating {
		h.State = types.WorkerJoining
	}
	data, err := h.Encode()
	if err != nil {
		return err
	}
	clear(p.inFlight)
	at := time.Now()
	p.inFlight[h.Nonce] = sent{h, at}
	rev, err := p.cfg.Store.Put(ctx, KeyPrefix+id, data, revision, 0)
	switch {
	case err == nil:
	case kv.IsUnknown(err):
		// Whether it landed shows at the next look: the incarnation is remembered as one of this process's own.
		p.former[p.holder.Incarnation] = true
		return p.unclaimed(err)
	default:
		return p.unclaimed(err)
	}
	p.former[p.holder.Incarnation] = true
	p.revision, p.created, p.bucketLost = rev, p.cfg.Store.Created(), false
	clear(p.inFlight)
	p.cfg.Lease.Renew(at)
	return nil
}

// unclaimed forgets a claim that did not succeed. A pooled ID is given up with it.
func (p *Publisher) unclaimed(err error) error {
	p.holder, p.revision = types.Holder{}, 0
	clear(p.inFlight)
	if p.cfg.ID == "" && !kv.IsUnknown(err) {
		p.id = ""
	}
	return err
}

// claimPooled claims the lowest ID of one listing that waits for a worker to come back, or else the lowest free one. When it loses
// a race it tries others at random, among twice as many each time, so that many starters spread over the free IDs instead of
// queueing for the first.
func (p *Publisher) claimPooled(r *rivalry) error {
	// Many who start together keep the server busy: who gives up early only has to ask for all of it again.
	patient, cancel := context.WithTimeout(p.ctx, p.cfg.Timing.TTL)
	defer cancel()
	if lost, err := p.mayHaveLostKeys(patient, kv.Entry{}); err != nil {
		return err
	} else if lost && !r.goneFor(p.cfg.Timing.TTL, 0) {
		return fmt.Errorf("%w: the heartbeat bucket is younger than the commit beside it; waiting one HeartbeatTTL (%v)",
			errWaiting, p.cfg.Timing.TTL)
	}
	entries, err := p.cfg.Store.List(patient, KeyPrefix+"*")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timing.RequestTimeout)
	defer cancel()
	ids := p.look(entries)
	var last error
	for window := 1; window <= 1<<12; window *= 2 {
		n := ids.pick(window)
		id := p.pooled(n)
		e, found := entries[KeyPrefix+id]
		over, _ := p.claimable(e, found)
		if last = p.take(ctx, id, over, e.Revision); !kv.IsConflict(last) {
			return last
		}
	}
	return last
}

func (p *Publisher) pooled(n int) string { return p.cfg.Pool + "-" + strconv.Itoa(n) }

// pool is what one listing says of the pool's numbers.
type pool struct {
	taken   map[int]bool // in use, or tried
	waiting []int        // in order, those whose workers have said that they come back
}

// look sorts the pool's numbers by what the listing says of them.
func (p *Publisher) look(entries map[string]kv.Entry) pool {
	ids := pool{taken: map[int]bool{}}
	for key, e := range entries {
		n, err := strconv.Atoi(strings.TrimPrefix(key, KeyPrefix+p.cfg.Pool+"-"))
		if err != nil || n < 0 || key != KeyPrefix+p.pooled(n) {
			continue
		}
		over, free := p.claimable(e, true)
		switch {
		case !free, e.Op == kv.Delete:
			ids.taken[n] = true
		case over == types.ClaimedRestarting:
			ids.waiting = append(ids.waiting, n)
		}
	}
	slices.Sort(ids.waiting)
	return ids
}

// pick returns one of the first window free numbers that it has not returned before, at random. As long as there are IDs that wait
// for their workers to come back, it is one of those: each is taken by one starter, so as many starters as IDs find one each.
func (ids *pool) pick(window int) int {
	if len(ids.waiting) > 0 {
		i := rand.IntN(min(window, len(ids.waiting)))
		n := ids.waiting[i]
		ids.waiting = slices.Delete(ids.waiting, i, i+1)
		ids.taken[n] = true
		return n
	}
	skip := rand.IntN(window)
	for n := 0; ; n++ {
		if ids.taken[n] {
			continue
		}
		if skip == 0 {
			ids.taken[n] = true
			return n
		}
		skip--
	}
}
