package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// worker is one heartbeat key with all the lives that were seen under it.
type worker struct {
	id string
	slot
	value heartbeat // where state is stateValue
	lives []*life   // in the order of their claims
}

// life is one incarnation of a worker.
type life struct {
	Holder
	first   time.Time // its first heartbeat was stored
	unheard bool      // the first one known was read, not heard: there may have been earlier ones
	claimed string
	applied int64
	labels  []string
	limit   capacity
	legacy  bool
	reports []report // each that says something new
	ended   ending
	endedAt time.Time
	heir    *life // the next incarnation under the key
}

type ending uint8

const (
	alive    ending = iota
	expired         // the server said so
	vanished        // deleted, or the bucket was recreated
	replaced        // the next one claimed over its value
)

// report is what a heartbeat says about releases.
type report struct {
	at      time.Time
	applied int64
	state   string
	named   []run
}

func (r *report) names(partition string) bool {
	return slices.ContainsFunc(r.named, func(x run) bool { return x.Partition == partition })
}

func (r *report) gone() bool { return r.state == "left" || r.state == "restarting" }

func (m *model) worker(id string) *worker {
	w := m.workers[id]
	if w == nil {
		w = &worker{id: id}
		m.workers[id] = w
	}
	return w
}

func (m *model) life(h Holder) *life {
	if w := m.workers[h.Worker]; w != nil {
		for _, l := range slices.Backward(w.lives) { // plain workers' lives all have the same name: the last one counts
			if l.Incarnation == h.Incarnation {
				return l
			}
		}
	}
	return nil
}

// current is the life whose value lies under the key, or nil.
func (w *worker) current() *life {
	if w.state != stateValue || len(w.lives) == 0 {
		return nil
	}
	return w.lives[len(w.lives)-1]
}

func (w *worker) end(how ending, at time.Time) {
	if n := len(w.lives); n > 0 && w.lives[n-1].ended == alive {
		w.lives[n-1].ended, w.lives[n-1].endedAt = how, at
	}
}

// vanish: the bucket was recreated at that time.
func (w *worker) vanish(at time.Time) {
	w.end(vanished, at)
	w.slot = slot{state: stateDeleted, at: at}
}

func (m *model) onHeartbeat(w *worker, e event) {
	before, last := w.slot, w.value
	known := contiguous(e, &before)
	if e.last == 0 && before.rev != 0 && known {
		w.end(vanished, e.at) // the marker has aged out, or the key was purged
		before = slot{}
	}
	w.slot.set(e)
	switch e.op {
	case opExpire:
		w.end(expired, e.at)
		return
	case opDelete:
		m.guarded(e, 0)
		w.end(vanished, e.at)
		return
	}
	var h heartbeat
	if err := json.Unmarshal(e.data, &h); err != nil || h.Capabilities&capAck == 0 {
		w.value = heartbeat{WorkerID: w.id, Incarnation: h.Incarnation, State: "active"}
		m.legacy(w, e)
		return
	}
	m.guarded(e, h.AppliedVersion)
	m.judgeForm(w, e, &h)
	if h.WorkerID != w.id || h.Incarnation == "" {
		return // nobody's
	}
	w.value = h
	l := m.life(h.holder())
	current := len(w.lives) > 0 && l == w.lives[len(w.lives)-1] && l.ended == alive
	switch {
	case l == nil:
		l = m.claim(w, e, &h, before, last, known)
	case !current:
		m.violate(HeartbeatRisen, e, h.AppliedVersion, "%v is back, it had ended at %v", l.Holder, l.endedAt.Format(timeForm))
		l.ended = alive
	case before.state == stateValue && last.gone() && !h.gone():
		m.violate(HeartbeatRisen, e, h.AppliedVersion, "%v is %s, it was %s", l.Holder, h.State, last.State)
	}
	m.judgeReport(e, &h, l)
}

const timeForm = "15:04:05.000000"

// legacy notes a worker that does not speak the commit protocol: it has no incarnation and acknowledges nothing.
func (m *model) legacy(w *worker, e event) {
	if n := len(w.lives); n == 0 || w.lives[n-1].ended != alive || !w.lives[n-1].legacy {
		w.lives = append(w.lives, &life{Holder: Holder{w.id, w.value.Incarnation}, first: e.at, legacy: true})
	}
}

func (m *model) judgeForm(w *worker, e event, h *heartbeat) {
	states := []string{"joining", "active", "draining", "restarting", "left", "coordinating"}
	claims := []string{"nothing", "expiry", "left", "restarting", "own"}
	if h.WorkerID != w.id || h.SchemaVersion != 1 || h.Incarnation == "" || h.Nonce == "" ||
		!slices.Contains(states, h.State) || !slices.Contains(claims, h.ClaimedOver) {
		m.violate(HeartbeatForm, e, h.AppliedVersion, "%.300s", e.data)
	}
	if len(h.Unreturned) > maxUnreturned {
		m.violate(HeartbeatMany, e, h.AppliedVersion, "%d runs", len(h.Unreturned))
	}
	for _, r := range h.Unreturned {
		if r.Epoch > h.AppliedVersion || r.Epoch < 1 || r.Partition == "" {
			m.violate(HeartbeatUnreturned, e, h.AppliedVersion, "%v names %s under epoch %d", h.holder(), r.Partition, r.Epoch)
		}
	}
}

// claim judges the first heartbeat of an incarnation. before and last are the key before it; known: that is really what it
// replaced.
func (m *model) claim(w *worker, e event, h *heartbeat, before slot, last heartbeat, known bool) *life {
	l := &life{Holder: h.holder(), first: e.at, unheard: e.read, claimed: h.ClaimedOver, labels: h.Labels, limit: h.Capacity}
	if known {
		m.judgeClaim(e, h, before, last)
	}
	if n := len(w.lives); n > 0 {
		w.end(replaced, e.at)
		w.lives[n-1].heir = l
	}
	w.lives = append(w.lives, l)
	return l
}

func (m *model) judgeClaim(e event, h *heartbeat, before slot, last heartbeat) {
	bad := func(rule Rule, format string, args ...any) {
		m.violate(rule, e, h.AppliedVersion, "%v: "+format, append([]any{h.holder()}, args...)...)
	}
	var was string
	switch {
	case before.state == stateExpired:
		was = "expiry"
	case before.state == stateNone:
		was = "nothing"
	case before.state == stateDeleted && h.ClaimedOver == "own":
		return // a process knows what became of its own former runs, whoever deleted the key
	case before.state == stateDeleted:
		was = "nothing"
		if ttl := m.heartbeatTTL(); e.at.Sub(before.at) < ttl {
			bad(HeartbeatWait, "claimed %v after the key was gone for no known reason, expected %v", e.at.Sub(before.at), ttl)
		}
	case last.gone() && (len(last.Unreturned) == 0 || h.ClaimedOver == "own"):
		was = last.State
	case h.ClaimedOver == "expiry" && e.at.Sub(before.at) >= m.heartbeatTTL():
		return // a key that did not expire in time, and was not renewed for as long as its holder's lease lasts
	case last.gone():
		bad(HeartbeatSeized, "claimed over %q of %v, which still names %v", last.State, last.holder(), last.Unreturned)
		return
	case h.ClaimedOver != "own":
		bad(HeartbeatSeized, "claimed over %q, but %v was alive there", h.ClaimedOver, last.holder())
		return
	}
	if ok := was == h.ClaimedOver || h.ClaimedOver == "own" && before.state == stateValue; !ok {
		bad(HeartbeatClaim, "claimed over %q, there was %q", h.ClaimedOver, was)
	}
}

// judgeReport compares a heartbeat with what its incarnation said before and with the commit that it names.
func (m *model) judgeReport(e event, h *heartbeat, l *life) {
	bad := func(rule Rule, format string, args ...any) {
		m.violate(rule, e, h.AppliedVersion, "%v "+format, append([]any{l.Holder}, args...)...)
	}
	if h.AppliedVersion < l.applied {
		bad(HeartbeatBack, "went back from version %d", l.applied)
	}
	l.applied = max(l.applied, h.AppliedVersion)
	if h.ClaimedOver != l.claimed {
		bad(HeartbeatClaim, "says that it claimed over %q, before that %q", h.ClaimedOver, l.claimed)
	}
	l.labels, l.limit = h.Labels, h.Capacity
	r := report{at: e.at, applied: h.AppliedVersion, state: h.State, named: h.Unreturned}
	if n := len(l.reports); n == 0 || l.reports[n-1].applied != r.applied || l.reports[n-1].state != r.state || !slices.Equal(l.reports[n-1].named, r.named) {
		l.reports = append(l.reports, r)
	}
	if h.AppliedVersion == 0 {
		return
	}
	oldest := int64(0)
	if len(m.order) == keepKnown || m.late && len(m.order) > 0 {
		oldest = m.order[0]
	}
	if h.AppliedVersion < oldest || m.late && m.highest == 0 {
		return // of a commit from before the checker's time, or from too long ago
	}
	m.expect(func() bool {
		return m.known[h.AppliedVersion] != nil || m.reconnect || len(m.order) > 0 && m.order[0] > h.AppliedVersion
	},
		violation(HeartbeatAhead, e, h.AppliedVersion, "%v applied version %d, which is no commit", l.Holder, h.AppliedVersion))
	m.expect(func() bool { return m.digestFault(h) == "" },
		violation(HeartbeatDigest, e, h.AppliedVersion, "%v names digest %q of term %d: %s", l.Holder, h.AppliedDigest, h.LeaderRevision, m.digestFault(h)))
	if m.c.oracle != nil && !h.gone() {
		m.judgeTruth(e, h)
	}
}

// digestFault says how term and digest of a heartbeat differ from those of the commit that it names.
func (m *model) digestFault(h *heartbeat) string {
	k := m.known[h.AppliedVersion]
	if k == nil || k.view == nil {
		return "" // another rule's
	}
	want, listed := k.digests[h.holder()]
	switch {
	case h.LeaderRevision != k.term:
		return "term"
	case listed && h.AppliedDigest != want, !listed && h.AppliedDigest != "" && h.AppliedDigest != setDigest(nil, nil):
		return "digest"
	}
	return ""
}

// judgeTruth compares an acknowledgement with the runs that the oracle sees now, which is later: what runs now and is from
// a commit up to the reported one must be listed there, or named.
func (m *model) judgeTruth(e event, h *heartbeat) {
	k := m.known[h.AppliedVersion]
	if k == nil || k.view == nil {
		return
	}
	for _, r := range m.c.oracle.runsOf(h.WorkerID) {
		given := m.known[r.Epoch]
		if given == nil || given.view == nil || given.view.slots[r.Partition].owner != h.holder() {
			continue // a run of another incarnation, of which this one says nothing
		}
		p, ok := k.view.slots[r.Partition]
		listed := ok && p.owned && p.owner == h.holder() && p.epoch == r.Epoch
		if r.Epoch <= h.AppliedVersion && !listed && !h.names(r.Partition) {
			m.violate(HeartbeatFalse, e, h.AppliedVersion, "%v reports it without naming %s, which runs under epoch %d", h.holder(), r.Partition, r.Epoch)
		}
	}
}

func (m *model) heartbeatTTL() time.Duration {
	if m.beats.ttl == 0 {
		m.identify(m.beats)
	}
	return m.beats.ttl
}

// released reports whether heartbeats stored up to the given time prove that the holder runs nothing of the partition that it
// had before the commit of that version.
func (m *model) released(h Holder, version int64, partition string, until time.Time) bool {
	l := m.life(h)
	if l == nil {
		return m.late // from before the checker's time
	}
	for i := range l.reports {
		r := &l.reports[i]
		if !r.at.After(until) && (r.applied >= version || r.gone()) && !r.names(partition) {
			return true
		}
	}
	if l.ended == alive || l.endedAt.After(until) {
		return false
	}
	aged := !until.Before(l.endedAt.Add(m.heartbeatTTL()))
	switch l.ended {
	case expired:
		return true
	case vanished:
		return aged || l.outlived(until)
	}
	// Replaced: the claim proves it, unless it was over the last words of a process that still ran this partition.
	if n := len(l.reports); n > 0 && l.reports[n-1].gone() && l.reports[n-1].names(partition) {
		return aged
	}
	return l.outlived(until) || aged
}

// outlived reports whether a later incarnation made a claim that proves the end of this one.
func (l *life) outlived(until time.Time) bool {
	for heir := l.heir; heir != nil; heir = heir.heir {
		if !heir.first.After(until) && heir.claimed != "nothing" && !heir.legacy {
			return true
		}
	}
	return false
}

// targetFault says why nothing may be newly given to the holder at that time; what is very recent may be unknown to the leader.
func (m *model) targetFault(h Holder, at time.Time) string {
	const slack = 2 * time.Second
	l := m.life(h)
	if l == nil {
		return ""
	}
	if l.ended != alive && l.endedAt.Before(at.Add(-slack)) {
		return fmt.Sprintf("ended at %v", l.endedAt.Format(timeForm))
	}
	state, since := "", time.Time{}
	for i := range l.reports {
		if r := &l.reports[i]; r.at.Before(at.Add(-slack)) && r.state != state {
			state, since = r.state, r.at
		}
	}
	if state == "left" || state == "restarting" || state == "draining" || state == "coordinating" {
		return fmt.Sprintf("%s since %v", state, since.Format(timeForm))
	}
	return ""
}
