package types

// Assignment is a snapshot of what one worker was given by the last commit that it applied. It is a copy: changing it has no
// effect. Being assigned is not owning: a partition may still run elsewhere until its earlier holders have released it.
type Assignment struct {
	// Version is the commit's version; 0 before the first.
	Version int64 `json:"version"`
	// LeaderRevision is the term of the leader that made the commit.
	LeaderRevision uint64 `json:"leader_revision"`
	// Lifecycle is the reason for the commit.
	Lifecycle string `json:"lifecycle"`
	// Partitions are the worker's partitions, sorted by ID.
	Partitions []AssignedPartition `json:"partitions"`
}

// AssignedPartition is a partition with the fencing token of its ownership.
type AssignedPartition struct {
	Partition Partition `json:"partition"`
	Epoch     int64     `json:"epoch"`
}
