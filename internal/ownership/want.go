package ownership

import (
	"time"

	"github.com/partigo/parti/types"
)

// want is an ownership given by a commit and not started yet.
type want struct {
	partition types.Partition
	applied   uint64       // number of the apply step that gave it
	since     time.Time    // when it was applied
	from      []types.From // holders not proved released yet
	forced    bool         // HandoffTimeout has passed
	state     types.OwnershipState
	settled   time.Time // since when it is Waiting
}

// give makes the slot want what the entry says. Held: mu.
func (r *Runtime) give(s *slot, e *types.AssignmentEntry) {
	s.want = &want{partition: e.Partition, applied: r.applies, since: time.Now(), from: r.foreign(e.From)}
	r.waiting[s] = struct{}{}
	if r.events != nil {
		r.tell(s, types.OwnershipChange{Ownership: r.wanted(s), From: types.OwnershipReleased, To: types.OwnershipAssigned})
	}
}

// unwant ends what the slot wants and has not begun, if anything. Held: mu.
func (r *Runtime) unwant(s *slot, cause error) {
	w := s.want
	if w == nil {
		return
	}
	if r.events != nil {
		r.tell(s, types.OwnershipChange{Ownership: r.wanted(s), From: w.state, To: types.OwnershipReleased, Cause: cause})
	}
	s.want = nil
	delete(r.waiting, s)
}

// settle notes what is decided once the server has the heartbeat that says so: that the partition has to wait. Held: mu.
func (r *Runtime) settle(s *slot) {
	w := s.want
	if w == nil || w.state != types.OwnershipAssigned || r.stored < w.applied || len(w.from) == 0 && s.run == nil {
		return
	}
	w.state, w.settled = types.OwnershipWaiting, time.Now()
	if r.events != nil {
		r.tell(s, types.OwnershipChange{Ownership: r.wanted(s), From: types.OwnershipAssigned, To: w.state, WaitingFor: holders(w.from)})
	}
}

// foreign returns the holders in from that are not this process: its own runs are judged by the rule that a partition never
// has two of them.
func (r *Runtime) foreign(from []types.From) []types.From {
	var others []types.From
	for _, f := range from {
		if !r.own[f.Incarnation] {
			others = append(others, f)
		}
	}
	return others
}
