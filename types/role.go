package types

// Role says which part a process takes in its group.
type Role string

// The roles.
const (
	// RoleWorker is given partitions, and may lead. An empty Role means it.
	RoleWorker Role = "worker"
	// RoleCoordinator may lead, and is given no partitions.
	RoleCoordinator Role = "coordinator"
	// RoleFollower is given partitions, and never leads.
	RoleFollower Role = "follower"
)

// MayLead reports whether a process of this role takes part in the election.
func (r Role) MayLead() bool { return r != RoleFollower }
