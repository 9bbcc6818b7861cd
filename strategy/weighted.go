package strategy

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/partigo/parti/types"
)

// WeightedConsistentHashStrategy is made by [WeightedConsistentHash].
type WeightedConsistentHashStrategy struct{ hashConfig }

// WeightedConsistentHash is [ConsistentHash] by cost: a partition belongs to the first worker clockwise whose load stays
// within c × mean with it. Heavier partitions choose first, since they find room least easily; so there is no separate
// treatment, and no setting, for heavy ones.
//
// A partition that fits nowhere goes to the least loaded worker. Hence the busiest worker has at most
// max(c × mean, mean + the heaviest partition); that is c × mean wherever no partition costs more than (c − 1) × mean.
// A change of a weight moves that partition and, by displacing, others.
func WeightedConsistentHash(opts ...HashOption) WeightedConsistentHashStrategy {
	return WeightedConsistentHashStrategy{newHashConfig(opts)}
}

// Assign implements [types.AssignmentStrategy].
func (s WeightedConsistentHashStrategy) Assign(ctx context.Context, in types.AssignmentInput) ([]int, error) {
	if err := errors.Join(s.Validate(), check(ctx, in)); err != nil {
		return nil, err
	}
	n, m := len(in.Partitions), len(in.Workers)
	if n == 0 {
		return []int{}, nil
	}
	cost, total := costs(in.Partitions)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int { return cmp.Compare(cost[j], cost[i]) })
	return newRing(in.Workers, s.virtual).assign(ctx, in.Partitions, order, cost, s.limit(total, m))
}
