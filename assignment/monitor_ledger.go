package assignment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// maxPast is how many ended incarnations are remembered for the sake of proving their releases. Forgetting one costs the next
// owners a look of their own, nothing else.
const maxPast = 1024

// presence says what is stored under a worker's key.
type presence uint8

const (
	alive   presence = iota // a value
	expired                 // the marker of an expiry
	deleted                 // the marker of a delete
)

// Member is what the view knows of one worker ID.
type Member struct {
	// Heartbeat is the last one that was readable; the zero value if there was none.
	types.Heartbeat
	// Unreadable: there is a value, and this release cannot read it. Heartbeat is the last good one then.
	Unreadable bool
	// Revision is that of the last entry seen, Seen when it was taken over, on this process's clock.
	Revision uint64
	Seen     time.Time
}

// View is a copy of what a WorkerMonitor knows.
type View struct {
	// Members has the workers whose key holds a value, by ID, also those whose last words it is.
	Members map[string]Member
	// Expired has the IDs of which the server announced that the key's time was over. No grace is due: the lease was the grace.
	// An ID that is in neither has no key for another reason, or never had one.
	Expired map[string]bool
	// Listings counts the complete listings so far; 0 means that nothing is known yet. Listed is when the last one began.
	Listings int
	Listed   time.Time
	// Trouble is the last moment at which the store was seen to be out of reach or the feed to be cut; zero: never.
	Trouble time.Time
	// Applied is the highest version that any heartbeat has ever shown as applied.
	Applied int64
}

func compareHolders(a, b types.Holder) int {
	if c := strings.Compare(a.Worker, b.Worker); c != 0 {
		return c
	}
	return strings.Compare(a.Incarnation, b.Incarnation)
}

// ledger is the view's bookkeeping, without any I/O. Its owner guards it.
type ledger struct {
	records  map[string]*workerRecord
	past     map[types.Holder]types.Heartbeat // last words of incarnations that lost their key
	order    []types.Holder                   // of past, oldest first
	created  time.Time                        // identity of the bucket
	heard    uint64                           // entries taken over so far
	highest  uint64                           // revision seen
	applied  int64                            // see View.Applied
	listings int
	began    time.Time // the last complete listing
	// listed is the highest applied version among the values of the last complete listing: whatever that listing shows was so
	// after this version had been published.
	listed   int64
	trouble  time.Time
	absences absences
	refused  map[string]bool // keys that are no worker's, and were said to be
	// silence is after how long a plain worker that is heard again is news; 0: never.
	silence time.Duration
}

type workerRecord struct {
	member   Member
	presence presence
	heard    uint64    // ledger.heard when it changed last
	listed   bool      // the present entry was seen in a complete listing
	since    time.Time // when presence or incarnation changed last, on this process's clock
}

func newLedger(created time.Time) *ledger {
	return &ledger{
		records: make(map[string]*workerRecord), past: make(map[types.Holder]types.Heartbeat), created: created, absences: newAbsences(),
		refused: make(map[string]bool),
	}
}

func (l *ledger) snapshot() View {
	v := View{
		Members:  make(map[string]Member, len(l.records)),
		Expired:  make(map[string]bool),
		Listings: l.listings,
		Listed:   l.began,
		Trouble:  l.trouble,
		Applied:  l.applied,
	}
	for id, r := range l.records {
		switch r.presence {
		case alive:
			v.Members[id] = r.member
		case expired:
			v.Expired[id] = true
		}
	}
	return v
}

// observe takes over an entry if it is newer than what is known, and reports whether a decision may depend on the change.
func (l *ledger) observe(e kv.Entry) (material bool, bad error) {
	id := strings.TrimPrefix(e.Key, heartbeatPrefix)
	if err := types.ValidateWorkerID(id); err != nil {
		return false, l.refuse(e, err)
	}
	l.highest = max(l.highest, e.Revision)
	r := l.records[id]
	if r == nil {
		r = &workerRecord{}
		l.records[id] = r
		material = true
	} else if e.Revision <= r.member.Revision {
		return false, nil
	}
	l.heard++
	was, before := r.member, r.presence
	r.heard, r.listed = l.heard, false
	r.member.Revision, r.member.Unreadable, r.member.Seen = e.Revision, false, time.Now()
	r.presence = presenceOf(e.Op)
	if material = material || before != r.presence; material {
		r.since = r.member.Seen
	}
	if e.Absent() {
		return material, nil
	}
	h, err := types.DecodeHeartbeat(id, e.Value)
	if err != nil {
		r.member.Unreadable = true
		if was.Unreadable && !material {
			err = nil // said once
		}
		return material || !was.Unreadable, err
	}
	if was.Incarnation != h.Incarnation {
		r.since = r.member.Seen
		l.bury(was.Heartbeat)
	}
	if r.member.Heartbeat = h; h.AppliedVersion > l.applied {
		l.applied = h.AppliedVersion
		material = true
	}
	material = material || h.Plain() && l.silence > 0 && r.member.Seen.Sub(was.Seen) >= l.silence // taken for dead meanwhile
	return material || was.Unreadable || was.Incarnation != h.Incarnation || was.State != h.State ||
		was.Capabilities != h.Capabilities || was.RestartGrace != h.RestartGrace || was.Capacity != h.Capacity || !slices.Equal(was.Labels, h.Labels), nil
}

// refuse returns the error about a key that is no worker's, unless it has been said since the key is there.
func (l *ledger) refuse(e kv.Entry, err error) error {
	if e.Absent() {
		delete(l.refused, e.Key)
		return nil
	}
	if l.refused[e.Key] {
		return nil
	}
	l.refused[e.Key] = true
	return fmt.Errorf("key %q: %w", e.Key, err)
}

func presenceOf(op kv.Op) presence {
	switch op {
	case kv.Put:
		return alive
	case kv.Expire:
		return expired
	}
	return deleted
}

// bury keeps the last words of an incarnation that is no longer the one behind its ID.
func (l *ledger) bury(h types.Heartbeat) {
	if h.Incarnation == "" {
		return
	}
	key := h.Holder()
	if _, known := l.past[key]; !known {
		l.order = append(l.order, key)
	}
	l.past[key] = h
	if len(l.order) > maxPast {
		delete(l.past, l.order[0])
		l.order = slices.Delete(l.order, 0, 1)
	}
}

// listingMark is the state of the view when a listing began.
type listingMark struct {
	heard, highest uint64
	at             time.Time
}

func (l *ledger) mark() listingMark {
	return listingMark{heard: l.heard, highest: l.highest, at: time.Now()}
}

// older reports whether the listing lacks what was known before it began.
func (k listingMark) older(entries map[string]kv.Entry) bool {
	var newest uint64
	for _, e := range entries {
		newest = max(newest, e.Revision)
	}
	return newest < k.highest
}

// merge takes over a complete listing. It refuses one that is older than the view, unless the bucket is another one: then the
// listing is all there is.
//
// Changes of the new bucket that were heard before the switch are lost with the old ones: the caller lists once more.
func (l *ledger) merge(in listing) (ok, restarted bool, bad []error) {
	if restarted = in.mark.older(in.entries); restarted {
		if in.created.Equal(l.created) {
			return false, false, nil
		}
		l.restart(in.created)
	}
	for key, e := range in.entries {
		if _, err := l.observe(e); err != nil {
			bad = append(bad, err)
		}
		if r := l.records[strings.TrimPrefix(key, heartbeatPrefix)]; r != nil && r.member.Revision == e.Revision {
			r.listed = true
		}
	}
	l.listed = 0
	for id, r := range l.records {
		if _, there := in.entries[heartbeatPrefix+id]; !there && r.heard <= in.mark.heard {
			l.bury(r.member.Heartbeat)
			delete(l.records, id)
			l.absences.note(id, time.Now())
			continue
		}
		if r.listed && r.presence == alive && !r.member.Unreadable {
			l.listed = max(l.listed, r.member.AppliedVersion)
		}
	}
	for key := range l.refused {
		if _, there := in.entries[key]; !there {
			delete(l.refused, key)
		}
	}
	l.listings++
	l.began = in.mark.at
	l.absences.listed(l.listed, time.Now())
	return true, restarted, bad
}

// restart forgets the keys of a bucket that is no more. What was proved stays proved.
func (l *ledger) restart(created time.Time) {
	for _, r := range l.records {
		l.bury(r.member.Heartbeat)
	}
	clear(l.records)
	l.absences.restart()
	l.created, l.highest, l.trouble = created, 0, time.Now()
}

// suspects returns, sorted, the incarnations seen that may still run something.
func (l *ledger) suspects() []types.Holder {
	var hs []types.Holder
	add := func(h *types.Heartbeat) {
		ended := h.State.Gone() && len(h.Unreturned) == 0
		if h.Incarnation != "" && !ended && !l.superseded(h.Holder(), true, math.MaxInt64) && !l.aged(h.Holder(), true, math.MaxInt64) {
			hs = append(hs, h.Holder())
		}
	}
	for id, r := range l.records {
		add(&r.member.Heartbeat)
		if h := &r.member.Heartbeat; r.presence == alive && h.WorkerID == id && h.Incarnation == "" && !h.State.Gone() {
			hs = append(hs, h.Holder()) // a plain worker, which has no incarnation
		}
	}
	for _, h := range l.past {
		add(&h)
	}
	slices.SortFunc(hs, compareHolders)
	return hs
}

// released is [WorkerMonitor.Released]: the rules (a), (b) and (c) of the handoff.
func (l *ledger) released(h types.Holder, version int64, partitionID string) bool {
	r := l.records[h.Worker]
	said, known := l.past[h]
	if r != nil && r.member.Holder() == h {
		said, known = r.member.Heartbeat, true
	}
	if h.Incarnation == "" {
		known = false // lives without incarnations look alike: what was seen may be of an earlier one
	}
	if known && (!said.Plain() && said.AppliedVersion >= version || said.State.Gone()) && !said.Names(partitionID) {
		return true // (a): an old observation is as good as a new one
	}
	return l.superseded(h, known, version) || l.aged(h, known, version)
}

// superseded is rule (b): the holder's key has expired, or belongs to an incarnation that could only claim it because nothing ran
// under it any more. The observation must not predate the holder. It does not if this view has known the holder, since
// entries are taken over in order; nor if it was made after a commit of that version, since the leader had seen the holder
// before it.
func (l *ledger) superseded(h types.Holder, known bool, version int64) bool {
	r := l.records[h.Worker]
	if r == nil || r.member.Unreadable {
		return false
	}
	switch r.presence {
	case expired:
		return r.listed && (known || l.listed >= version)
	case alive:
		later := r.member.Holder() != h && (known || r.member.AppliedVersion >= version || r.listed && l.listed >= version)
		return later && !r.member.Plain() && r.member.ClaimedOver.ProvesRelease()
	}
	return false
}
