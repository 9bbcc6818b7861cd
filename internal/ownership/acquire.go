package ownership

import (
	"context"
	"slices"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Observer is how the runtime looks at other workers' heartbeats.
type Observer interface {
	// Fresh lists the last entries, markers included, of the workers' heartbeat keys, by worker ID. The listing is complete and
	// reflects the store at a moment after the call began.
	Fresh(ctx context.Context, workers []string) (map[string]kv.Entry, error)
	// Last reads the last entries of the workers' heartbeat keys, by worker ID. They may be stale. What cannot be read is left out.
	Last(ctx context.Context, workers []string) map[string]kv.Entry
	// Follow makes the live heartbeats of exactly these workers arrive at Heard, from some moment before it returns.
	Follow(workers []string) error
}

// absence is what is known about a holder whose key is gone without a proof, or is not renewed: since when, on this process's own
// clock, and at which revision.
type absence struct {
	since    time.Time
	revision uint64
}

// Start starts the acquiring loop.
func (r *Runtime) Start() { r.start.Do(func() { go r.acquire() }) }

// Stop ends the acquiring loop and waits for it, and for every run: the caller has drained before. Runs that never return are
// not waited for beyond ctx; their names are returned.
func (r *Runtime) Stop(ctx context.Context) (unreturned []types.Run) {
	r.stop()
	r.start.Do(func() { close(r.done) })
	<-r.done
	r.mu.Lock()
	if r.expiry != nil {
		r.expiry.Stop()
	}
	r.mu.Unlock()
	all := make(chan struct{})
	go func() { r.runs.Wait(); close(all) }()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.draining {
		unreturned = append(unreturned, types.Run{Partition: s.id, Epoch: s.run.epoch})
	}
	return unreturned
}

func (r *Runtime) drainLimit(run *run) time.Duration {
	if run.state == types.OwnershipLost {
		return r.cfg.FenceGrace
	}
	return r.cfg.DrainTimeout
}

// overdue reports handlers that have not returned in time, and forces the start of what has waited for too long. Nobody is told
// under the lock.
func (r *Runtime) overdue() {
	var tell []func()
	r.mu.Lock()
	for s := range r.draining {
		run := s.run
		if run.late || r.since(run.ended) < r.drainLimit(run) {
			continue
		}
		run.late = true
		id, epoch, state, since := s.id, run.epoch, run.state, r.origin.Add(run.ended)
		tell = append(tell, func() {
			r.cfg.Metrics.HandlerOverdue(id)
			r.cfg.Logger.Error("handler ignores that its context has ended", "partition", id, "epoch", epoch,
				"state", state.String(), "for", time.Since(since))
		})
	}
	for s := range r.waiting {
		w := s.want
		if r.cfg.HandoffTimeout < 0 || len(w.from) == 0 || w.forced || r.stored < w.applied || time.Since(w.since) < r.cfg.HandoffTimeout {
			continue
		}
		w.forced = true
		id, epoch, since, holders := s.id, s.epoch, w.since, slices.Clone(w.from)
		tell = append(tell, func() {
			r.cfg.Metrics.HandoffForced(id)
			r.cfg.Logger.Error("starting a partition that earlier holders have not released", "partition", id, "epoch", epoch,
				"waited", time.Since(since), "holders", holders)
		})
		r.tryStart(s)
	}
	r.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// sight is what one fresh look at a worker's key showed.
type sight struct {
	expired   bool             // an expiry marker, or what is as good
	heartbeat *types.Heartbeat // a value that could be read
	revision  uint64           // of what is stored; 0: nothing is
}

func see(worker string, e kv.Entry, found bool) sight {
	if !found || e.Op == kv.Delete {
		return sight{}
	}
	if e.Op == kv.Expire {
		return sight{expired: true}
	}
	h, err := types.DecodeHeartbeat(worker, e.Value)
	if err != nil {
		return sight{} // whoever wrote that is not the holder; nothing more is known
	}
	return sight{heartbeat: &h, revision: e.Revision}
}

// released decides by a fresh observation whether the holder can no longer be running the partition. What was observed was so at some moment
// after asOf. Held: mu.
func (r *Runtime) released(id string, f types.From, v sight, asOf time.Time) bool {
	h := v.heartbeat
	own := h != nil && h.Incarnation == f.Incarnation
	switch {
	case v.expired:
		return true
	case own && !h.Plain() && Acknowledged(h, f.Version, id):
		return true
	case own && h.Plain() && h.State.Gone():
		return true // the last words of a plain worker: this look is fresh, so they are none of an earlier life
	case !own && h != nil && !h.Plain() && h.ClaimedOver.ProvesRelease():
		return true
	}
	// The key is gone for another reason, or the holder has it, which may be dead: one heartbeat life on the own clock must pass in which it
	// is not renewed. A key usually expires then, but not if it was written without a TTL, or the server's clock was set back.
	now := time.Now()
	until, revision := now, uint64(0)
	if own { // a holder whose key is gone cannot renew it; this one may have, after what was observed
		until, revision = asOf, v.revision
	}
	a, known := r.heard[f.Holder]
	if !known || a.revision != revision {
		r.heard[f.Holder] = absence{now, revision}
		return false
	}
	return until.Sub(a.since) >= r.cfg.HeartbeatTTL
}

// Acknowledged reports whether the heartbeat of a holder says that it has applied version, or left, and no longer runs the
// partition. The pair is read from this one heartbeat; an old one is as good as a fresh one, since it stays true.
func Acknowledged(h *types.Heartbeat, version int64, partitionID string) bool {
	return (h.AppliedVersion >= version || h.State.Gone()) && !h.Names(partitionID)
}

// Heard takes note of what arrived on the live subject of a worker's heartbeat.
func (r *Runtime) Heard(worker string, e kv.Entry) {
	v := see(worker, e, true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hear(worker, v) {
		r.look = true
		r.poke()
	}
}

// hear lets go of the holders that the heartbeat says have released, starts what that leaves free, and reports whether what it shows
// of others counts only in a fresh observation. An acknowledgement stays true, so it may come before the server has this worker's own.
// Held: mu.
func (r *Runtime) hear(worker string, v sight) (relevant bool) {
	for s := range r.waiting {
		before := len(s.want.from)
		s.want.from = slices.DeleteFunc(s.want.from, func(f types.From) bool {
			if f.Worker != worker {
				return false
			}
			if v.heartbeat == nil || v.heartbeat.Incarnation != f.Incarnation {
				relevant = true // a marker, or another incarnation
				return false
			}
			if v.heartbeat.Plain() { // lives without incarnations look alike
				relevant = relevant || v.heartbeat.State.Gone()
				return false
			}
			return Acknowledged(v.heartbeat, f.Version, s.id)
		})
		if len(s.want.from) < before {
			r.tryStart(s)
			r.poke() // fewer may have to be followed
		}
	}
	return relevant
}

// Reconnected makes the runtime look again at what it may have missed.
func (r *Runtime) Reconnected() {
	r.mu.Lock()
	r.look = len(r.waiting) > 0
	r.mu.Unlock()
	r.poke()
}
