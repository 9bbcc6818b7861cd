package strategy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/strategy/strategytest"
	"github.com/partigo/parti/types"
)

func workers(n int) []types.Worker {
	ws := make([]types.Worker, n)
	for i := range ws {
		ws[i].ID = fmt.Sprintf("worker-%05d", i)
	}
	return ws
}

// partitions makes n partitions, sorted by ID, dealt to some kinds; weight may be nil.
func partitions(n, kinds int, weight func(i int) int64) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("kind-%05d", i*kinds/n), fmt.Sprintf("%07d", i))
		if weight != nil {
			ps[i].Weight = weight(i)
		}
	}
	return ps
}

func mixedWeight(i int) int64 {
	switch {
	case i%100 == 0:
		return 20
	case i%11 == 0:
		return 3
	}
	return 1
}

func assign(t require.TestingT, s types.AssignmentStrategy, in types.AssignmentInput) []int {
	out, err := s.Assign(context.Background(), in)
	require.NoError(t, err)
	require.Len(t, out, len(in.Partitions))
	require.False(t, slices.ContainsFunc(out, func(w int) bool { return w < 0 || w >= len(in.Workers) }), "%v", out)
	return out
}

// joined is the input after a worker, which sorts last, has joined.
func joined(in types.AssignmentInput, owners []int) types.AssignmentInput {
	in.Workers = append(slices.Clone(in.Workers), types.Worker{ID: "worker-99999"})
	in.Previous = owners
	return in
}

// left is the input after worker w has left.
func left(in types.AssignmentInput, owners []int, w int) types.AssignmentInput {
	in.Workers = slices.Delete(slices.Clone(in.Workers), w, w+1)
	in.Previous = slices.Clone(owners)
	for i, o := range owners {
		switch {
		case o == w:
			in.Previous[i] = types.NoOwner
		case o > w:
			in.Previous[i] = o - 1
		}
	}
	return in
}

// counts returns how many partitions each worker has: all, or those whose first key is kind.
func counts(in types.AssignmentInput, owners []int, kind string) []int {
	c := make([]int, len(in.Workers))
	for i, w := range owners {
		if kind == "" || in.Partitions[i].Keys[0] == kind {
			c[w]++
		}
	}
	return c
}

func loads(in types.AssignmentInput, owners []int) (load []int64, mean float64) {
	load = make([]int64, len(in.Workers))
	total := 0.0
	for i, w := range owners {
		load[w] += in.Partitions[i].Cost()
		total += float64(in.Partitions[i].Cost())
	}
	return load, total / float64(len(load))
}

func spread[T int | int64](c []T) T { return slices.Max(c) - slices.Min(c) }

func TestConformance(t *testing.T) {
	t.Run("Sticky", func(t *testing.T) {
		strategytest.Run(t, strategy.Sticky(), strategytest.MaxSpread(1), strategytest.MinimalMovement(),
			strategytest.Balance(1.05), strategytest.Stable())
	})
	t.Run("ConsistentHash", func(t *testing.T) {
		strategytest.Run(t, strategy.ConsistentHash(), strategytest.Stable())
	})
	t.Run("WeightedConsistentHash", func(t *testing.T) {
		strategytest.Run(t, strategy.WeightedConsistentHash(), strategytest.Balance(strategy.DefaultLoadFactor), strategytest.Stable())
	})
	t.Run("RoundRobin", func(t *testing.T) {
		strategytest.Run(t, strategy.RoundRobin(), strategytest.MaxSpread(1), strategytest.Stable())
	})
}

func TestRefusesImpossibleInput(t *testing.T) {
	for _, s := range []types.AssignmentStrategy{strategy.Sticky(), strategy.ConsistentHash(), strategy.WeightedConsistentHash(), strategy.RoundRobin()} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			_, err := s.Assign(context.Background(), types.AssignmentInput{Partitions: partitions(3, 1, nil)})
			require.ErrorIs(t, err, types.ErrInvalidConfig)
			require.ErrorContains(t, err, "at least one")
			_, err = s.Assign(context.Background(), types.AssignmentInput{Workers: workers(2), Partitions: partitions(3, 1, nil), Previous: []int{0}})
			require.ErrorIs(t, err, types.ErrInvalidConfig)
			out, err := s.Assign(context.Background(), types.AssignmentInput{})
			require.NoError(t, err)
			require.Empty(t, out)
			out = assign(t, s, types.AssignmentInput{Workers: workers(2), Partitions: partitions(4, 1, nil), Previous: []int{-7, 99, 2, -1}})
			require.Len(t, out, 4, "owners out of range are nobody")
		})
	}
}

// docs/ROBUSTNESS.md row 25: whatever strategy follows whatever other in a rolling deploy, every step owns everything.
func TestRow25ChangeOfStrategyOwnsEverythingAtEachStep(t *testing.T) {
	all := []types.AssignmentStrategy{strategy.Sticky(), strategy.ConsistentHash(), strategy.WeightedConsistentHash(), strategy.RoundRobin()}
	in := types.AssignmentInput{Workers: workers(10), Partitions: partitions(500, 3, mixedWeight)}
	for _, from := range all {
		for _, to := range all {
			in.Previous = assign(t, from, in)
			assign(t, to, in)
		}
	}
}

func TestMinimumMoves(t *testing.T) {
	for _, c := range []struct {
		workers  int
		previous []int
		want     int
	}{
		{workers: 1, previous: []int{0, 0}, want: 0},
		{workers: 2, previous: []int{0, 0}, want: 1},
		{workers: 2, previous: []int{0, 0, 0}, want: 1},
		{workers: 3, previous: []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, want: 3},
		{workers: 2, previous: []int{0, 0, 1, -1}, want: 0},
		{workers: 2, previous: []int{0, 0, -1, 7}, want: 0},
		{workers: 0, previous: nil, want: 0},
	} {
		in := types.AssignmentInput{Workers: workers(c.workers), Partitions: partitions(len(c.previous), 1, nil), Previous: c.previous}
		require.Equal(t, c.want, strategy.MinimumMoves(in), "%v", c)
	}
}

// The formula against every assignment there is.
func TestMinimumMovesByExhaustion(t *testing.T) {
	for m := 1; m <= 3; m++ {
		for n := range 6 {
			for _, previous := range functions(n, types.NoOwner, m-1) {
				in := types.AssignmentInput{Workers: workers(m), Partitions: partitions(n, 1, nil), Previous: previous}
				least := n
				for _, owners := range functions(n, 0, m-1) {
					if spread(counts(in, owners, "")) <= 1 {
						least = min(least, strategy.Moves(in, owners))
					}
				}
				require.Equal(t, least, strategy.MinimumMoves(in), "%v", previous)
			}
		}
	}
}

// functions returns every list of n numbers from low to high.
func functions(n, low, high int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, f := range functions(n-1, low, high) {
		for v := low; v <= high; v++ {
			all = append(all, append(slices.Clone(f), v))
		}
	}
	return all
}
