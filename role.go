package parti

import (
	"fmt"
	"time"

	"github.com/partigo/parti/election"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// Role says which part a Manager takes in its group, see [WithRole].
type Role = types.Role

// The roles.
const (
	// RoleWorker, the default: it runs partitions, and may lead.
	RoleWorker = types.RoleWorker
	// RoleCoordinator: it may lead, and is given no partitions. It has a worker ID, claims and renews it like a worker, and follows the
	// commits, so it takes over like one; it counts for nothing that is about workers.
	RoleCoordinator = types.RoleCoordinator
	// RoleFollower: it runs partitions, and never leads. A group of followers alone is not led: nothing is assigned, those who are there
	// go on with what they have, and each of them is degraded after about two leases without a leader.
	RoleFollower = types.RoleFollower
)

// coordinatorPool is the pool of coordinators that are given none.
const coordinatorPool = "coordinator"

// validateRole reports what does not go with the role.
func (s *settings) validateRole() error {
	switch s.Role {
	case RoleWorker, RoleFollower:
		return nil
	case RoleCoordinator:
	default:
		return fmt.Errorf("%w: Role is %q: use parti.RoleWorker, parti.RoleCoordinator or parti.RoleFollower", ErrInvalidConfig, string(s.Role))
	}
	var what string
	switch {
	case s.handler != nil:
		what = "a handler"
	case s.hooks.OnAssigned != nil || s.hooks.OnRevoked != nil || s.hooks.OnLost != nil || s.hooks.OnOwnership != nil:
		what = "OnAssigned, OnRevoked, OnLost or OnOwnership"
	case len(s.Labels) > 0 || s.Capacity != (types.Capacity{}):
		what = "labels or a capacity"
	default:
		return nil
	}
	return fmt.Errorf("%w: parti.RoleCoordinator is given no partitions, so %s would never be used: leave it out, or use parti.RoleWorker",
		ErrInvalidConfig, what)
}

// observeLeader hands on an entry of the leader key, heard or read.
func (m *Manager) observeLeader(e kv.Entry) {
	p := m.parts
	p.elector.Observe(e)
	if _, led := p.elector.Leader(); led && p.elector.Quiet() < m.set.LeaderLease { // not only the old value once more
		m.health.recover(causeLeader)
	}
}

// observeRead hands on an entry that the follower has read rather than heard.
func (m *Manager) observeRead(e kv.Entry) {
	if e.Key == election.Key {
		m.observeLeader(e)
	}
}

// leaderless is after how many leases without a word from a leader it is a fault, whoever may lead: a crash takes a little over one.
const leaderless = 3

// silent takes note that nothing was heard of a leader for a lease. It runs on the elector's goroutine. Who may lead does so then; for
// who may not it is a fault that only an operator can mend. So it is for everybody where it goes on.
func (m *Manager) silent() {
	p := m.parts
	p.follower.Reconnected()
	if _, leading := p.elector.Leading(); leading {
		return
	}
	_, led := p.elector.Leader()
	quiet := p.elector.Quiet()
	switch {
	case m.set.Role.MayLead() && quiet < leaderless*m.set.LeaderLease, led && quiet < leaderless*m.set.LeaderLease:
	case m.set.Role.MayLead() || led:
		m.health.degrade(causeLeader, fmt.Sprintf("nobody leads the group: nothing was heard of a leader for %v", quiet.Round(time.Second)))
	default:
		m.health.degrade(causeLeader, "nobody leads the group, and this worker may not: "+
			"start a process with parti.RoleCoordinator or parti.RoleWorker, or `parti coordinator "+m.set.Namespace+"`")
	}
}
