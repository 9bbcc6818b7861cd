package strategy_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// Owners by hash must be the same in every process and release. If this fails, a rolling upgrade moves everything.
func TestHashingGolden(t *testing.T) {
	in := types.AssignmentInput{Workers: workers(5), Partitions: partitions(24, 2, mixedWeight)}
	require.Equal(t, []int{2, 4, 2, 1, 3, 2, 0, 4, 1, 1, 4, 2, 3, 3, 1, 0, 2, 2, 0, 4, 3, 3, 3, 0}, assign(t, strategy.ConsistentHash(), in))
	require.Equal(t, []int{0, 4, 2, 1, 3, 2, 3, 4, 1, 1, 4, 2, 3, 3, 1, 3, 2, 2, 3, 4, 3, 2, 2, 3}, assign(t, strategy.WeightedConsistentHash(), in))
}

func TestHashingIgnoresPrevious(t *testing.T) {
	for _, s := range []types.AssignmentStrategy{strategy.ConsistentHash(), strategy.WeightedConsistentHash(), strategy.RoundRobin()} {
		in := types.AssignmentInput{Workers: workers(5), Partitions: partitions(100, 2, mixedWeight)}
		out := assign(t, s, in)
		in.Previous = make([]int, 100)
		require.Equal(t, out, assign(t, s, in))
	}
}

// The paper's bound ⌈c·n/m⌉, for every c.
func TestConsistentHashBoundProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, nil)
		permille := rapid.IntRange(1001, 3000).Draw(t, "load factor, ‰")
		s := strategy.ConsistentHash(strategy.WithLoadFactor(float64(permille)/1000), strategy.WithVirtualNodes(rapid.IntRange(1, 50).Draw(t, "V")))
		n, m := len(in.Partitions), len(in.Workers)
		require.LessOrEqual(t, slices.Max(counts(in, assign(t, s, in), "")), (permille*n+1000*m-1)/(1000*m))
	})
}

func TestWeightedConsistentHashBoundProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, drawnWeight(t))
		load, mean := loads(in, assign(t, strategy.WeightedConsistentHash(), in))
		heaviest := int64(0)
		for _, p := range in.Partitions {
			heaviest = max(heaviest, p.Cost())
		}
		require.LessOrEqual(t, float64(slices.Max(load)), max(math.Ceil(1.1*mean), mean+float64(heaviest))*(1+1e-12))
	})
}

func TestHashingMovesLittle(t *testing.T) {
	for _, s := range []types.AssignmentStrategy{strategy.ConsistentHash(), strategy.WeightedConsistentHash()} {
		in := types.AssignmentInput{Workers: workers(100), Partitions: partitions(10_000, 10, nil)}
		in = joined(in, assign(t, s, in))
		require.Less(t, strategy.Moves(in, assign(t, s, in)), 200, "%T: the least is 99", s)
	}
}

func TestHashOptionsAreChecked(t *testing.T) {
	in := types.AssignmentInput{Workers: workers(2), Partitions: partitions(2, 1, nil)}
	for _, c := range []struct {
		opt  strategy.HashOption
		want string
	}{
		{strategy.WithLoadFactor(1), "above 1"},
		{strategy.WithLoadFactor(math.NaN()), "above 1"},
		{strategy.WithLoadFactor(math.Inf(1)), "at most 10"},
		{strategy.WithVirtualNodes(0), "1 to 16384"},
		{strategy.WithVirtualNodes(1 << 20), "1 to 16384"},
	} {
		for _, s := range []interface {
			types.AssignmentStrategy
			Validate() error
		}{strategy.ConsistentHash(c.opt), strategy.WeightedConsistentHash(c.opt)} {
			_, err := s.Assign(context.Background(), in)
			require.ErrorIs(t, err, types.ErrInvalidConfig)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, s.Validate(), types.ErrInvalidConfig)
		}
	}
	require.NoError(t, strategy.ConsistentHash().Validate())
	require.ErrorIs(t, strategy.ConsistentHashStrategy{}.Validate(), types.ErrInvalidConfig, "made without its constructor")
}
