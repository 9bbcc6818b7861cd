package ownership

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	// recheck is how often holders that have not released are observed afresh without being heard: a live heartbeat can be missed.
	recheck = 3 * time.Second
	// firstGlance is the wait between the first two glances at holders that are alive. It grows up to recheck.
	firstGlance = 50 * time.Millisecond
	// fewHolders is up to how many holders are glanced at, one by one. More are observed afresh at once: one listing is cheaper.
	fewHolders = 16
	// observeLimit bounds one look. After one that failed, or was not fresh, the wait grows from observeRetry to observeRetryLimit.
	observeLimit      = 5 * time.Second
	observeRetry      = 50 * time.Millisecond
	observeRetryLimit = 500 * time.Millisecond
)

// lookout is what the acquiring loop knows about its own looks. A planned move needs none in the best case, or a glance: the holder's
// last heartbeat acknowledges, or shows that it is alive and will be heard. Only where a holder seems to be gone does it take a fresh
// observation, which costs the server a consumer.
type lookout struct {
	newest  uint64    // the last apply step that was glanced for
	glances int       // since then
	next    time.Time // of the next glance
	doubt   bool      // something was seen or heard that takes a fresh observation
	// owed: a doubt was about those whose heartbeat the server has not got yet, too. It counts again when it has got a later one than
	// when the last observation was made, which was for the apply step fresh: until then another one would show no more.
	owed   bool
	fresh  uint64
	began  time.Time // since when somebody is waited for
	at     time.Time // of the last fresh observation
	retry  *backoff.Backoff
	resume time.Time // no fresh observation before, because the last one failed
}

// expected is what is waited for.
type expected struct {
	workers []string // who is to release
	newest  uint64   // the newest apply step among those who wait
	// settled and fresh are the same for those of which the server has this worker's heartbeat sent after applying. That is what
	// makes an observation fresh.
	settled []string
	fresh   uint64
	// wait is how long nothing needs to be done if nothing is heard.
	wait time.Duration
}

// acquire is the loop that looks for releases. It owns the lookout and the set of followed workers; everything else is under the lock.
func (r *Runtime) acquire() {
	defer close(r.done)
	var followed []string
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	o := lookout{retry: backoff.New(observeRetry, observeRetryLimit)}
	for {
		e := r.pending()
		if !slices.Equal(e.workers, followed) {
			if err := r.cfg.Observer.Follow(e.workers); err != nil {
				r.cfg.Logger.Warn("cannot follow the heartbeats of earlier holders", "error", err)
			} else {
				followed = e.workers
			}
		}
		wait, again := r.lookOut(e, &o)
		if again {
			continue
		}
		timer.Reset(max(min(e.wait, wait), time.Millisecond))
		select {
		case <-r.wake:
		case <-timer.C:
			r.overdue()
		case <-r.ctx.Done():
			_ = r.cfg.Observer.Follow(nil)
			return
		}
	}
}

// lookOut looks for releases if there is reason to; again says that it did. Otherwise there will be reason to after wait.
func (r *Runtime) lookOut(e expected, o *lookout) (wait time.Duration, again bool) {
	now := time.Now()
	o.doubt = r.takeStale() || o.doubt
	if len(e.workers) == 0 {
		*o = lookout{retry: o.retry, newest: o.newest}
		return time.Hour, false
	}
	if o.began.IsZero() {
		o.began = now
	}
	if o.owed && e.fresh > o.fresh {
		o.doubt, o.owed = true, false
	}
	few := len(e.workers) <= fewHolders
	if e.newest > o.newest {
		o.newest, o.glances, o.next = e.newest, 0, now
		o.doubt = o.doubt || !few
	}
	if few && !now.Before(o.next) {
		o.doubt = r.glance(e.workers) || o.doubt
		o.next = time.Now().Add(min(firstGlance<<(2*min(o.glances, 8)), recheck))
		o.glances++
		return 0, true
	}
	due := r.nextLook(o)
	if o.doubt {
		due = now
	}
	if due = later(due, o.resume); len(e.settled) > 0 && !now.Before(due) {
		if r.observe(e.settled) {
			o.owed = (o.doubt || o.owed) && e.fresh < e.newest
			o.at, o.doubt, o.fresh = now, false, e.fresh
			o.retry.Reset()
			return 0, true
		}
		o.resume = time.Now().Add(o.retry.Next())
		due = o.resume
	}
	wait = time.Hour
	if len(e.settled) > 0 { // or the next heartbeat wakes the loop
		wait = time.Until(due)
	}
	if few {
		wait = min(wait, time.Until(o.next))
	}
	return wait, false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// pending returns what is waited for now.
func (r *Runtime) pending() expected {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := expected{wait: time.Hour}
	workers, settled := map[string]bool{}, map[string]bool{}
	r.forget()
	for s := range r.waiting {
		w := s.want
		if len(w.from) == 0 {
			continue
		}
		if r.cfg.HandoffTimeout >= 0 && !w.forced {
			e.wait = min(e.wait, time.Until(w.since.Add(r.cfg.HandoffTimeout)))
		}
		e.newest = max(e.newest, w.applied)
		for _, f := range w.from {
			workers[f.Worker] = true
		}
		if r.stored < w.applied {
			continue
		}
		e.fresh = max(e.fresh, w.applied)
		for _, f := range w.from {
			settled[f.Worker] = true
		}
	}
	for s := range r.draining {
		if limit := r.drainLimit(s.run); !s.run.late {
			e.wait = min(e.wait, limit-r.since(s.run.ended))
		}
	}
	e.workers, e.settled = slices.Sorted(maps.Keys(workers)), slices.Sorted(maps.Keys(settled))
	return e
}

// forget drops what is known of holders that nobody waits for: how long a key was gone then says nothing about later. Held: mu.
func (r *Runtime) forget() {
	if len(r.heard) == 0 {
		return
	}
	awaited := make(map[types.Holder]bool, len(r.heard))
	for s := range r.waiting {
		for _, f := range s.want.from {
			awaited[f.Holder] = true
		}
	}
	maps.DeleteFunc(r.heard, func(h types.Holder, _ absence) bool { return !awaited[h] })
}

// nextLook returns when to observe without having heard anything: an absence may have lasted long enough then. It is a moment and no
// wait, because what wakes the loop in between, this worker's own heartbeats for instance, must not put it off.
func (r *Runtime) nextLook(o *lookout) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := later(o.began, o.at).Add(recheck)
	for _, a := range r.heard {
		if end := a.since.Add(r.cfg.HeartbeatTTL); end.After(o.at) && end.Before(due) {
			due = end
		}
	}
	return due
}

// takeStale reports whether something was heard that needs a fresh observation.
func (r *Runtime) takeStale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	stale := r.look
	r.look = false
	return stale
}

// glance reads the last heartbeats of the workers, which may be old, and starts what they release. It reports whether they leave a
// doubt that a holder is alive under its own incarnation and will be heard.
func (r *Runtime) glance(workers []string) (doubt bool) {
	r.mu.Lock()
	incarnation := r.holder.Incarnation
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.ctx, observeLimit)
	defer cancel()
	entries := r.cfg.Observer.Last(ctx, workers)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced || r.holder.Incarnation != incarnation {
		return false
	}
	for _, w := range workers {
		e, found := entries[w]
		v := see(w, e, found)
		if r.hear(w, v) || v.heartbeat != nil && v.heartbeat.Plain() {
			doubt = true
		}
	}
	return doubt
}

// observe makes one fresh observation of the workers and starts what it releases. It reports whether the observation was fresh
// enough to count.
func (r *Runtime) observe(workers []string) bool {
	r.mu.Lock()
	self, incarnation, storedAt, stored, asOf := r.holder.Worker, r.holder.Incarnation, r.storedAt, r.stored, r.storedFrom
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.ctx, observeLimit)
	defer cancel()
	entries, err := r.cfg.Observer.Fresh(ctx, append([]string{self}, workers...))
	if err != nil {
		if r.ctx.Err() == nil {
			r.cfg.Logger.Warn("no fresh observation of earlier holders", "error", err)
		}
		return false
	}
	if mine, ok := entries[self]; !ok || mine.Absent() || mine.Revision < storedAt {
		return false // older than the heartbeat that this worker sent after applying
	}
	evidence := make(map[string]sight, len(workers))
	for _, w := range workers {
		e, found := entries[w]
		v := see(w, e, found)
		// A key deleted one heartbeat life before this worker's own heartbeat was stored would have expired by then, by the same clock.
		v.expired = v.expired || found && e.Op == kv.Delete && entries[self].Created.Sub(e.Created) >= r.cfg.HeartbeatTTL
		evidence[w] = v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced || r.holder.Incarnation != incarnation {
		return false
	}
	for s := range r.waiting {
		if s.want.applied > stored {
			continue
		}
		s.want.from = slices.DeleteFunc(s.want.from, func(f types.From) bool {
			v, looked := evidence[f.Worker]
			return looked && r.released(s.id, f, v, asOf)
		})
		r.tryStart(s)
	}
	if len(r.waiting) == 0 {
		clear(r.heard)
	}
	return true
}
