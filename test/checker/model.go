package checker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// grace is how long a rule whose evidence comes from the other stream waits for that evidence: the order between two streams
// is not defined. Evidence must still have been stored before what it is evidence for.
const grace = 250 * time.Millisecond

// clusterGrace is the same with OverCluster.
const clusterGrace = 20 * time.Second

type keyState uint8

const (
	stateNone keyState = iota
	stateValue
	stateDeleted
	stateExpired
)

// slot is what is known of one key.
type slot struct {
	state keyState
	rev   uint64
	at    time.Time // of the last message
}

func (s *slot) set(e event) {
	s.rev, s.at = e.rev, e.at
	s.state = [...]keyState{opPut: stateValue, opDelete: stateDeleted, opExpire: stateExpired}[e.op]
}

// model is what the checker knows. It is owned by Checker.loop; only newModel runs elsewhere.
type model struct {
	c         *Checker
	control   *bucket
	beats     *bucket
	attached  bool // the first snapshot was taken
	late      bool // it found a commit: what it rests on was not seen
	reconnect bool // since the last commit

	leader struct {
		slot
		value leaderValue
		batch string
		// ends is when the key's time is over, as the server stored it. It keeps the key longer where it cannot write the marker.
		ends time.Time
		term uint64 // revision of the acquisition, 0 where it was not heard
	}
	commit slot

	now      *view // the last commit whose content is known
	highest  int64
	lastTerm uint64
	known    map[int64]*knownCommit
	order    []int64 // keys of known
	nonces   map[string]int64
	epochs   map[string]int64 // highest epoch seen, by partition
	lost     bool             // a commit was lost: the next one must reissue everything
	blobs    map[string]*content

	workers map[string]*worker
	due     []pending
}

// knownCommit is what heartbeats and restored commits are compared with.
type knownCommit struct {
	raw     []byte
	term    uint64
	source  uint64
	digests map[Holder]string
	view    *view
}

const keepKnown = 64

// pending is a rule that waits for evidence.
type pending struct {
	at    time.Time
	holds func() bool
	v     Violation
}

func newModel(c *Checker, namespace string) *model {
	return &model{
		c:       c,
		control: &bucket{nc: c.nc, name: namespace + "-control"},
		beats:   &bucket{nc: c.nc, name: namespace + "-heartbeat"},
		known:   map[int64]*knownCommit{}, nonces: map[string]int64{}, epochs: map[string]int64{},
		blobs: map[string]*content{}, workers: map[string]*worker{},
	}
}

func (m *model) violate(rule Rule, e event, version int64, format string, args ...any) {
	m.c.violate(violation(rule, e, version, format, args...))
}

func violation(rule Rule, e event, version int64, format string, args ...any) Violation {
	return Violation{Rule: rule, Key: e.key, Revision: e.rev, Version: version, At: e.at, Detail: fmt.Sprintf(format, args...)}
}

// expect judges a rule now if it holds, and otherwise once its evidence must have arrived.
func (m *model) expect(holds func() bool, v Violation) {
	if !holds() {
		m.due = append(m.due, pending{time.Now().Add(m.c.grace), holds, v})
	}
}

// unproved returns how many rules wait for evidence in vain so far.
func (m *model) unproved() (n int64) {
	for _, p := range m.due {
		if !p.holds() {
			n++
		}
	}
	return n
}

func (m *model) untilDue() time.Duration {
	if len(m.due) == 0 {
		return time.Hour
	}
	return max(time.Until(m.due[0].at), 0)
}

// judgeDue judges what has waited long enough, or all.
func (m *model) judgeDue(all bool) {
	n := 0
	for n < len(m.due) && (all || !time.Now().Before(m.due[n].at)) {
		n++
	}
	ripe := m.due[:n:n]
	m.due = m.due[n:]
	for _, p := range ripe {
		if p.holds() {
			continue
		}
		if p.v.Rule == FromMissing && m.identify(m.beats) && p.holds() {
			continue
		}
		if m.c.cluster {
			if m.reread(false); p.holds() {
				continue // it was stored, and not heard
			}
		}
		m.c.violate(p.v)
	}
}

func (m *model) dealWith(events []event) {
	for _, e := range events {
		switch {
		case e.key == keyLeader:
			if m.follow(e, &m.leader.slot, m.control) {
				m.onLeader(e)
			}
		case e.key == keyCommit:
			if m.follow(e, &m.commit, m.control) {
				m.onCommit(e)
			}
		case e.heartbeat():
			if w := m.worker(strings.TrimPrefix(e.key, keyHeartbeat)); m.follow(e, &w.slot, m.beats) {
				m.onHeartbeat(w, e)
			}
		}
	}
}

// follow reports whether the event is news about its key. One that does not follow from what is known is either old, or says
// that something was missed, or that the bucket is another one.
func (m *model) follow(e event, s *slot, b *bucket) bool {
	if e.read && e.rev == s.rev {
		return false
	}
	if !e.read && e.last == s.rev && e.rev > s.rev {
		if s.rev == 0 && (b == m.control || len(m.workers) == 1) {
			m.identify(b) // the first of all: from now on another time of creation means another bucket
		}
		return true
	}
	m.identify(b)
	return e.rev > s.rev
}

// contiguous reports whether e directly replaced what is known of the key.
func contiguous(e event, s *slot) bool { return !e.read && (e.last == s.rev || e.last == 0) }

// identify asks whether the bucket is still the same, and if not forgets what it held and returns true.
func (m *model) identify(b *bucket) bool {
	created, err := b.info(m.c.ctx)
	if err != nil || created.IsZero() || created.Equal(b.created) {
		return false
	}
	first := b.created.IsZero()
	b.created = created
	if first {
		return false
	}
	if b == m.beats {
		for _, w := range m.workers {
			w.vanish(created)
		}
		return true
	}
	m.leader.slot, m.leader.term, m.lastTerm = slot{}, 0, 0
	m.commit = slot{}
	m.lose(event{key: keyCommit, at: created}, "the bucket was recreated")
	return true
}

func (m *model) lose(e event, how string) {
	if m.highest == 0 {
		return
	}
	m.lost = true
	if !m.c.lossAllowed() {
		m.violate(CommitLost, e, m.highest, "%s", how)
	}
}

// resync reads what cannot have been heard: at the start, and after the connection was lost.
func (m *model) resync() {
	first := !m.attached
	m.attached = true
	m.reconnect = !first
	m.reread(first)
}

// reread deals with what the store holds now.
func (m *model) reread(first bool) {
	for _, b := range []*bucket{m.control, m.beats} {
		m.identify(b)
	}
	var events []event
	if !m.beats.created.IsZero() {
		beats, err := m.beats.list(m.c.ctx, keyHeartbeat+"*")
		if err != nil {
			m.c.skip(fmt.Sprintf("heartbeats at the start or after a reconnect: %v", err))
		}
		events = append(events, beats...)
	}
	if !m.control.created.IsZero() {
		for _, key := range []string{keyLeader, keyCommit} {
			switch e, err := m.control.get(m.c.ctx, key); {
			case err == nil:
				m.late = m.late || first && key == keyCommit
				events = append(events, e)
			case !errors.Is(err, errNotFound):
				m.c.skip(fmt.Sprintf("%s at the start or after a reconnect: %v", key, err))
			}
		}
	}
	m.dealWith(events)
}

func (m *model) guarded(e event, version int64) {
	if !e.read && e.op != opExpire && e.expect == "" && !m.c.operatorAllowed() {
		m.violate(Unguarded, e, version, "written without an expected revision")
	}
}

func (m *model) onLeader(e event) {
	l := &m.leader
	before := *l
	if !e.read && e.last == 0 {
		before.slot = slot{} // the marker has aged out
	}
	l.slot.set(e)
	l.batch = e.batch
	l.ends = time.Time{}
	if d, err := time.ParseDuration(e.ttl); err == nil {
		l.ends = e.at.Add(d)
	}
	m.guarded(e, 0)
	if e.op != opPut {
		return
	}
	var v leaderValue
	if err := json.Unmarshal(e.data, &v); err != nil || v.Worker == "" || v.Incarnation == "" || v.Nonce == "" {
		m.violate(LeaderForm, e, 0, "%v: %.200s", err, e.data)
		return
	}
	if !e.read && e.ttl == "" {
		m.violate(LeaderForm, e, 0, "it would never expire")
	}
	l.value = v
	same := v.holder() == before.value.holder() && v.AcquiredAt.Equal(before.value.AcquiredAt)
	switch {
	case !contiguous(e, &before.slot):
		if !same || l.term == 0 {
			l.term = cmp.Or(v.Term, e.rev) // acquired unheard, and held against the next
		}
	case before.state != stateValue:
		l.term = e.rev
		if v.Term != 0 {
			m.violate(LeaderTerm, e, 0, "an acquisition names term %d", v.Term)
		}
	case !same && v.Term == 0 && v.Worker == before.value.Worker:
		l.term = e.rev // a process takes back what an earlier term of its own has left; whose own it is cannot be seen from outside
	case !same && !before.ends.IsZero() && !e.at.Before(before.ends):
		l.term = e.rev // the lease was over
	case !same:
		m.violate(LeaderSeized, e, 0, "%v wrote over the live key of %v", v.holder(), before.value.holder())
		l.term = e.rev
	default:
		if v.CommitVersion < before.value.CommitVersion {
			m.violate(LeaderVersion, e, v.CommitVersion, "went back from %d", before.value.CommitVersion)
		}
		if v.Term != l.term {
			m.violate(LeaderTerm, e, 0, "a renewal names term %d, the key was acquired at %d", v.Term, l.term)
		}
	}
	m.expect(func() bool { return v.CommitVersion <= m.highest || m.late && m.highest == 0 },
		violation(LeaderVersion, e, v.CommitVersion, "no commit of version %d is known", v.CommitVersion))
}
