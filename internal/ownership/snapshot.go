package ownership

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/partigo/parti/types"
)

// index finds slots by partition. It is changed under the runtime's lock and its own, so either is enough to read it: there are those
// who must not wait for the runtime's.
type index struct {
	mu  sync.RWMutex
	all map[string]*slot
}

// running returns the partition's run that is started and not cancelled, or nil. Not held: the runtime's lock.
func (x *index) running(id string) *run {
	x.mu.RLock()
	s := x.all[id]
	x.mu.RUnlock()
	if s == nil {
		return nil
	}
	return s.running.Load()
}

func (x *index) add(s *slot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all[s.id] = s
}

func (x *index) delete(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, id)
}

// Owns reports whether the partition runs here now: started, not cancelled, and the lease holds. It waits for no step of the runtime.
func (r *Runtime) Owns(id string) bool { return r.slots.running(id) != nil && r.cfg.Lease.Valid() }

// Epoch returns the fencing token of the partition's present run here; false where it does not run.
func (r *Runtime) Epoch(id string) (int64, bool) {
	run := r.slots.running(id)
	if run == nil || !r.cfg.Lease.Valid() {
		return 0, false
	}
	return run.epoch, true
}

// since returns how long ago something happened that was noted as a time since the runtime was made.
func (r *Runtime) since(at time.Duration) time.Duration { return time.Since(r.origin) - at }

// Running returns how many partitions run here now.
func (r *Runtime) Running() int { return int(r.nRuns.Load()) }

// Applied returns the version of the commit applied last, and the one that heartbeats report.
func (r *Runtime) Applied() (applied, reported int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commit.Version, r.report.commit.Version
}

// Assignment returns a copy of what the commit applied last gives to this worker.
func (r *Runtime) Assignment() types.Assignment {
	r.mu.Lock()
	c := r.commit
	if r.fenced {
		c.Entries = nil
	}
	r.mu.Unlock()
	a := types.Assignment{Version: c.Version, LeaderRevision: c.LeaderRevision, Lifecycle: c.Lifecycle}
	if len(c.Entries) > 0 {
		a.Partitions = make([]types.AssignedPartition, len(c.Entries))
	}
	for i, e := range c.Entries { // entries are never changed after they were applied
		a.Partitions[i] = types.AssignedPartition{Partition: e.Partition.Clone(), Epoch: e.Epoch}
	}
	return a
}

// Partitions returns what every partition does that is assigned to this worker or still runs here, sorted by ID and state.
func (r *Runtime) Partitions() []types.PartitionStatus {
	r.mu.Lock()
	out := make([]types.PartitionStatus, 0, len(r.slots.all))
	for _, s := range r.slots.all {
		if s.run != nil {
			p := types.PartitionStatus{ID: s.id, Epoch: s.run.epoch, State: s.run.state, Since: r.origin.Add(s.run.began), Overdue: s.run.late}
			if s.run.state != types.OwnershipRunning {
				p.Since = r.origin.Add(s.run.ended)
			}
			out = append(out, p)
		}
		if _, waits := r.waiting[s]; waits {
			p := types.PartitionStatus{ID: s.id, Epoch: s.epoch, State: s.want.state, Since: s.want.since, WaitingFor: holders(s.want.from)}
			if p.State == types.OwnershipWaiting {
				p.Since = s.want.settled
			}
			out = append(out, p)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b types.PartitionStatus) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return int(a.Epoch - b.Epoch)
	})
	return out
}
