package types

import "context"

// NoOwner stands for "nobody" in [AssignmentInput.Previous].
const NoOwner = -1

// AssignmentInput is what a strategy decides on: one pool of workers and the partitions that any of them may have. It is read-only.
//
// Labels and capacity are settled around it. A group with labels has several pools, and each is asked about by itself. A worker
// that is full is left out, with what it keeps, and the rest is asked about again.
type AssignmentInput struct {
	// Workers are the live workers, sorted by ID, at least one, none twice.
	Workers []Worker

	// Partitions are the partitions to place, sorted by ID, none twice. There may be none.
	Partitions []Partition

	// Previous has one element for each of Partitions: the index in Workers of the owner in the last commit, or [NoOwner]
	// where there was none or it is gone.
	Previous []int
}

// AssignmentStrategy decides who gets what.
//
// Assign returns one element for each of in.Partitions: the index in in.Workers of the new owner. So a partition cannot be
// given twice; one that is left out, or given to a worker that does not exist, makes the whole result invalid, and the
// leader keeps the last good assignment.
//
// Assign must be deterministic in its input: the same workers, partitions and previous owners give the same result in any
// process. It is called by the leader from one goroutine at a time, under a deadline; ctx ends with it. A strategy that
// panics or never returns does not harm the group.
//
// Package strategytest has a conformance suite for implementations.
type AssignmentStrategy interface {
	Assign(ctx context.Context, in AssignmentInput) ([]int, error)
}

// StrategyFunc makes an ordinary function an [AssignmentStrategy].
type StrategyFunc func(ctx context.Context, in AssignmentInput) ([]int, error)

// Assign calls f.
func (f StrategyFunc) Assign(ctx context.Context, in AssignmentInput) ([]int, error) {
	return f(ctx, in)
}
