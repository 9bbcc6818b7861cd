package strategy

import (
	"context"

	"github.com/partigo/parti/types"
)

// RoundRobinStrategy is made by [RoundRobin].
type RoundRobinStrategy struct{}

// RoundRobin gives the i-th partition, in the order of IDs, to worker i mod m.
//
// The spread is ≤ 1, over all partitions and over those of any one first key, and anybody can compute the owner. It ignores weights, and it
// moves nearly everything whenever a worker or a partition comes or goes: use it where moving is free.
func RoundRobin() RoundRobinStrategy { return RoundRobinStrategy{} }

// Assign implements [types.AssignmentStrategy].
func (RoundRobinStrategy) Assign(ctx context.Context, in types.AssignmentInput) ([]int, error) {
	if err := check(ctx, in); err != nil {
		return nil, err
	}
	return deal(len(in.Partitions), len(in.Workers)), nil
}

// deal gives partition i to worker i mod m. Every run of neighbours is dealt evenly, so the spread is ≤ 1 within it too.
func deal(n, m int) []int {
	out := make([]int, n)
	for i, w := 0, 0; i < n; i++ {
		out[i] = w
		if w++; w == m {
			w = 0
		}
	}
	return out
}
