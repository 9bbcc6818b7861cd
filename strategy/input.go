package strategy

import (
	"context"
	"fmt"

	"github.com/partigo/parti/types"
)

// ctxStride is how many steps of a loop pass between two looks at the context: some 10 µs.
const ctxStride = 1 << 12

// maxTotal bounds the sum of all costs, so that 32 times any sum of them still fits an int64.
const maxTotal = 1 << 58

// check refuses what no strategy can work on. A Previous of length 0 means that nothing had an owner.
func check(ctx context.Context, in types.AssignmentInput) error {
	switch n := len(in.Partitions); {
	case len(in.Workers) == 0 && n > 0:
		return fmt.Errorf("%w: there are no workers to place %d partitions on: pass at least one", types.ErrInvalidConfig, n)
	case len(in.Previous) != 0 && len(in.Previous) != n:
		return fmt.Errorf("%w: Previous has %d elements for %d partitions: pass one for each, types.NoOwner where there is none",
			types.ErrInvalidConfig, len(in.Previous), n)
	}
	return ctx.Err()
}

// owners returns a copy of in.Previous, one element for each partition, in which everything that is no worker is NoOwner.
func owners(in types.AssignmentInput) []int {
	prev := make([]int, len(in.Partitions))
	copy(prev, in.Previous)
	for i, w := range prev {
		if w < 0 || w >= len(in.Workers) || len(in.Previous) == 0 {
			prev[i] = types.NoOwner
		}
	}
	return prev
}

// equalCosts reports whether all partitions cost the same.
func equalCosts(ps []types.Partition) bool {
	for i := range ps {
		if ps[i].Cost() != ps[0].Cost() {
			return false
		}
	}
	return true
}

// costs returns the cost of each partition and their sum, which is at most maxTotal: where the sum would exceed it, all are
// scaled down by a power of two, at least to 1. A cost below 1 counts as 1; [types.Partition.Validate] refuses it earlier.
func costs(ps []types.Partition) (cost []int64, total int64) {
	cost = make([]int64, len(ps))
	limit := int64(maxTotal / max(1, len(ps)))
	var most int64
	for i := range ps {
		cost[i] = max(1, ps[i].Cost())
		most = max(most, cost[i])
	}
	shift := 0
	for most>>shift > limit {
		shift++
	}
	for i, c := range cost {
		cost[i] = max(1, c>>shift)
		total += cost[i]
	}
	return cost, total
}

// scale returns x × num / den, rounded down, without an overflow on the way.
func scale(x, num, den int64) int64 { return x/den*num + x%den*num/den }

// ceilDiv returns x / y, rounded up, for x ≥ 0 and y > 0.
func ceilDiv(x, y int64) int64 { return (x + y - 1) / y }
