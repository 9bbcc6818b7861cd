package types

import "context"

// PartitionSource says which partitions exist. The leader asks it; every worker should be given an equal one, since
// any worker may lead.
//
// The leader calls it from one goroutine at a time, with a deadline, and survives an error, a panic and a call that never
// returns: the last good list stays in force. The order of the result does not matter. The result is not changed by the
// caller and must not be changed by the source after it was returned.
type PartitionSource interface {
	ListPartitions(ctx context.Context) ([]Partition, error)
}

// WatchablePartitionSource also tells when its list may have changed, so that a change takes effect at once rather than
// at the next periodic look.
type WatchablePartitionSource interface {
	PartitionSource

	// Watch returns a channel that receives a value after each change; several changes may share one. The channel is
	// closed when ctx ends. A missed signal costs time, never correctness.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

// SourceSnapshot is a list of partitions together with the revision at which it was read.
type SourceSnapshot struct {
	Partitions []Partition
	// Revision grows with every change of the list. It appears in the commit made from the list. A lower one than was seen before is taken for an
	// old read, and believed when nothing else was seen for a HeartbeatTTL.
	Revision uint64
}

// RevisionedPartitionSource also knows the revision of its list, so that everybody can tell which list a commit was made
// from.
type RevisionedPartitionSource interface {
	PartitionSource
	Snapshot(ctx context.Context) (SourceSnapshot, error)
}

// UpdatablePartitionSource can be changed through the same value that is read.
type UpdatablePartitionSource interface {
	PartitionSource

	// Modify replaces the list by what change makes of it, atomically with respect to other writers; change may run
	// more than once and must have no side effect. An error of change is returned as it is and nothing is written.
	Modify(ctx context.Context, change func([]Partition) ([]Partition, error)) error

	// Add adds partitions; one that is there already gets the given weight and label.
	Add(ctx context.Context, ps ...Partition) error

	// Remove removes partitions by identity; one that is not there is no error.
	Remove(ctx context.Context, ps ...Partition) error
}
