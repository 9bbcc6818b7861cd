package assignment

import (
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

const (
	// workerConfirmations is how many complete listings in a row have to show that half of the workers or more vanished.
	workerConfirmations = 2
	// suspicionInterval is how soon a suspicious observation is repeated.
	suspicionInterval = time.Second
	// silenceShare is the part of a HeartbeatTTL that the marker of an expired key may be late, or come in the midst of a reconnect.
	silenceShare = 8
)

// seat is a worker that the next commit lists.
type seat struct {
	plan.Worker
	// held: the worker is missing, and it is too early to act on that. It keeps what it has and gets nothing.
	held bool
	// plain: it does not speak the commit protocol, and gets an alias.
	plain bool
	// standby: it is beyond MaxWorkers, and takes over when another one leaves.
	standby bool
	// next is the partition that a drain takes from it now; waits: it has not returned the one before.
	next  string
	waits bool
}

// roster decides from what is seen which workers the next commit lists. It belongs to the loop.
type roster struct {
	detector *EmergencyDetector
	shrink   *Credibility
	recovery recovery
	// graces has the end of the grace of workers that said they restart, in Unix ms, from the moment it was first heard.
	graces map[types.Holder]int64
	// silence is for how long nothing may be heard of a worker that is given something: its key must be gone by then.
	silence  time.Duration
	listings int // complete listings evaluated so far
	mandates *mandates
}

func newRoster(cfg *Config, released func(types.Holder, int64, string) bool) *roster {
	r := &roster{
		detector: NewEmergencyDetector(cfg.EmergencyGracePeriod),
		shrink:   NewCredibility(workerConfirmations),
		recovery: recovery{hold: cfg.HeartbeatTTL},
		silence:  cfg.HeartbeatTTL + cfg.HeartbeatTTL/silenceShare,
		graces:   make(map[types.Holder]int64),
		mandates: newMandates(cfg, released),
	}
	r.recovery.trouble(cfg.LastTrouble)
	return r
}

// sitting is the outcome of one evaluation.
type sitting struct {
	seats []seat // sorted by worker ID
	// dead are committed workers that are not listed any more because they died, gone those that left.
	dead, gone []string
	// next is when the outcome may change without an event; zero: not.
	next time.Time
	// relist: a complete listing is wanted by next.
	relist bool
	// standby are the workers beyond MaxWorkers, sorted.
	standby []string
	// outlived has the committed workers that are dead though their keys are there, see roster.outlived.
	outlived map[string]bool

	targets, live, legacy, held int
}

func (s *sitting) until(at time.Time) {
	if !at.IsZero() && (s.next.IsZero() || at.Before(s.next)) {
		s.next = at
	}
}

// evaluate compares the committed workers with those seen.
func (r *roster) evaluate(view View, committed *plan.State, now time.Time) sitting {
	s := sitting{outlived: make(map[string]bool)}
	listed := make(map[string]*plan.Slice)
	if committed != nil {
		for i := range committed.Slices {
			listed[committed.Slices[i].Worker] = &committed.Slices[i]
		}
	}
	seated := make(map[string]bool, len(view.Members))
	for id, m := range view.Members {
		w, ok := r.seatOf(&m, listed[id], now, &s)
		if !ok {
			continue
		}
		if w.Target && !m.Plain() && r.unheard(&m, now) {
			seated[id] = s.silent(&m, listed[id], r.outlived(&m, view), now)
			continue
		}
		at := seat{Worker: w, plain: m.Plain()}
		if _, drains := r.mandates.drains[id]; drains && w.Target {
			s.targets--
			if at.plain { // it cannot say what it has returned, so there is no going one by one
				continue
			}
			r.mandates.drain(&at, listed[id], now, &s)
		}
		s.seats = append(s.seats, at)
		seated[id] = true
	}
	r.recovery.trouble(view.Trouble)
	missing := make(map[string]bool)
	for id, slice := range listed {
		if seated[id] {
			continue
		}
		r.absent(slice, view, now, missing, &s)
	}
	r.infer(missing, seated, len(listed), view.Listings, now, listed, &s)
	r.listings = view.Listings
	for h := range r.graces {
		if slice := listed[h.Worker]; slice == nil || slice.Holder != h { // until then it is remembered that it is over
			delete(r.graces, h)
		}
	}
	slices.SortFunc(s.seats, func(a, b seat) int { return strings.Compare(a.Worker.Worker, b.Worker.Worker) })
	s.limitPlain()
	slices.Sort(s.dead)
	slices.Sort(s.gone)
	return s
}

// seatOf says what a worker with a value gets.
func (r *roster) seatOf(m *Member, slice *plan.Slice, now time.Time, s *sitting) (plan.Worker, bool) {
	if m.Unreadable {
		return plan.Worker{}, false
	}
	if m.Plain() {
		return r.plainSeat(m, now, s)
	}
	if r.mandates.evicts(m.Holder(), slice) {
		return plan.Worker{}, false
	}
	switch m.State {
	case types.WorkerJoining, types.WorkerActive:
		s.live++
		s.targets++
		return plan.Worker{Holder: m.Holder(), Labels: m.Labels, Capacity: m.Capacity, Target: true}, true
	case types.WorkerRestarting:
		if until := r.graceOf(m, slice, now); until > now.UnixMilli() {
			s.until(time.UnixMilli(until))
			return plan.Worker{Holder: m.Holder(), Labels: m.Labels, GraceUntil: until}, true
		}
	case types.WorkerDraining:
		s.live++
	}
	return plan.Worker{}, false
}

// graceOf returns until when, in Unix ms, a restarting worker keeps its partitions; 0 where it has none or asked for nothing.
func (r *roster) graceOf(m *Member, slice *plan.Slice, now time.Time) int64 {
	if slice == nil || slice.Holder != m.Holder() || m.RestartGrace <= 0 {
		return 0
	}
	if until, known := r.graces[slice.Holder]; known {
		return until
	}
	until := now.UnixMilli() + min(m.RestartGrace, types.MaxRestartGrace.Milliseconds())
	if slice.GraceUntil != 0 { // a former leader heard it, whose clock may be ahead
		until = min(until, slice.GraceUntil)
	}
	r.graces[slice.Holder] = until
	return until
}

// graceEnd returns until when, in Unix ms, a committed worker that is not there keeps its partitions; 0 where it has no grace. What a
// former leader wrote, by a clock of its own, holds them for MaxRestartGrace at most.
func (r *roster) graceEnd(slice *plan.Slice, now time.Time) int64 {
	if until, known := r.graces[slice.Holder]; known {
		return until
	}
	if most := now.Add(types.MaxRestartGrace).UnixMilli(); slice.GraceUntil > most {
		r.graces[slice.Holder] = most
		return most
	}
	return slice.GraceUntil
}

// absent sorts a committed worker that has no seat: it has left, keeps its grace, has expired, or is missing.
func (r *roster) absent(slice *plan.Slice, view View, now time.Time, missing map[string]bool, s *sitting) {
	id := slice.Worker
	if _, there := view.Members[id]; there && !s.outlived[id] || r.mandates.evicted[slice.Holder] {
		s.gone = append(s.gone, id)
		return
	}
	until := r.graceEnd(slice, now)
	switch {
	case until > now.UnixMilli():
		s.until(time.UnixMilli(until))
		s.seats = append(s.seats, seat{Worker: plan.Worker{Holder: slice.Holder, GraceUntil: until}})
	case until != 0:
		s.gone = append(s.gone, id)
	case !view.Expired[id] && !s.outlived[id]:
		missing[id] = true
	default:
		if end := r.recovery.until(now); !end.IsZero() {
			s.hold(slice, end)
			return
		}
		s.dead = append(s.dead, id)
	}
}

// hold keeps the seat of a worker, and looks at it again at end.
func (s *sitting) hold(slice *plan.Slice, end time.Time) {
	s.until(end)
	s.held++
	// To the plan it is one in a restart grace; what the commit says of its grace does not change, see settleHeld.
	until := max(1, slice.GraceUntil)
	s.seats = append(s.seats, seat{Worker: plan.Worker{Holder: slice.Holder, GraceUntil: until}, held: true})
}

// silent takes a target away of which nothing was heard for longer than its key lives, though nobody has said that the key is gone. Perhaps the
// marker was missed, and no listing has come through since: it keeps what it has until a listing tells, and gets nothing. If a listing has told
// that the key outlived its holder, the worker is dead. It reports whether the worker has a seat.
func (s *sitting) silent(m *Member, slice *plan.Slice, outlived bool, now time.Time) bool {
	s.live--
	s.targets--
	committed := slice != nil && slice.Holder == m.Holder()
	if outlived {
		s.outlived[m.WorkerID] = committed
		return false
	}
	s.relist = true
	if !committed {
		s.until(now.Add(suspicionInterval))
		return false
	}
	s.hold(slice, now.Add(suspicionInterval))
	return true
}

// unheard reports whether nothing was heard of a member for longer than its key lives.
func (r *roster) unheard(m *Member, now time.Time) bool { return now.Sub(m.Seen) > r.silence }

// outlived reports whether a complete listing shows that a member's key is there and was not renewed for longer than its lease lasts: it was
// written without a TTL, or the server's clock was set back. Its holder is as dead as one whose key has expired.
func (r *roster) outlived(m *Member, view View) bool { return view.Listed.Sub(m.Seen) > r.silence }

// silentIn reports whether the view, which may be older than what was heard since, has members that were not heard of for too long.
func (r *roster) silentIn(view View, now time.Time) bool {
	for _, m := range view.Members {
		if r.unheard(&m, now) {
			return true
		}
	}
	return false
}

// infer decides about workers that are missing without the server having said that they expired.
func (r *roster) infer(missing, seated map[string]bool, known, listings int, now time.Time, listed map[string]*plan.Slice, s *sitting) {
	counted := make(map[string]bool, len(missing)+len(seated))
	for id := range missing {
		counted[id] = true
	}
	for id := range seated {
		counted[id] = true
	}
	confirmed, _ := r.detector.CheckEmergency(counted, seated)
	if listings != r.listings {
		r.shrink.Observe(known, known-len(missing))
	}
	believed := r.shrink.Believes(known, known-len(missing))
	end := r.recovery.until(now)
	first := r.listings == 0 // a new leader believes its first complete listing
	for id := range missing {
		_, dead := slices.BinarySearch(confirmed, id)
		switch {
		case !end.IsZero():
			s.hold(listed[id], end)
		case first, dead && believed:
			s.dead = append(s.dead, id)
		case dead:
			s.relist = true
			s.hold(listed[id], now.Add(suspicionInterval))
		default:
			s.relist = s.relist || !believed
			s.hold(listed[id], r.detector.deadline(id))
		}
	}
}
