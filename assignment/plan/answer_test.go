package plan_test

import (
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	in := types.AssignmentInput{
		Workers:    []types.Worker{{ID: "w1"}, {ID: "w2", Labels: []string{"x"}}},
		Partitions: []types.Partition{types.NewPartition("a"), {Keys: []string{"b"}, Label: "x"}},
	}
	require.NoError(t, plan.Validate(in, []int{0, 1}))
	for text, owners := range map[string][]int{
		"0 owners for 2 partitions":                      nil,
		"3 owners for 2 partitions":                      {0, 1, 1},
		`"a" is given to worker -1 of 2`:                 {types.NoOwner, 1},
		`"a" is given to worker 2 of 2`:                  {2, 1},
		`"b" needs label "x", which "w1" does not carry`: {0, 0},
	} {
		err := plan.Validate(in, owners)
		require.ErrorIs(t, err, types.ErrInvalidAssignment)
		require.ErrorContains(t, err, text)
	}
	many := types.AssignmentInput{Partitions: make([]types.Partition, 100)}
	require.ErrorContains(t, plan.Validate(many, make([]int, 100)), "further faults are not listed")

	_, err := prepareAndNext(plan.Input{Version: 1, Partitions: parts("a"), Workers: []plan.Worker{target("w1", "i1")}}, []int{7})
	require.ErrorIs(t, err, types.ErrInvalidAssignment)
}

func TestFallback(t *testing.T) {
	in := types.AssignmentInput{
		Workers: []types.Worker{{ID: "w1"}, {ID: "w2", Labels: []string{"x"}}, {ID: "w3", Labels: []string{"x"}}},
		Partitions: []types.Partition{
			{Keys: []string{"a"}, Weight: 500}, // stays
			{Keys: []string{"b"}, Label: "x"},  // its owner lacks the label
			{Keys: []string{"c"}, Weight: 10},
			{Keys: []string{"d"}, Weight: 300}, // homeless, the costliest first
			{Keys: []string{"e"}, Weight: 200},
			{Keys: []string{"f"}, Label: "y"},
		},
		Previous: []int{0, 0, types.NoOwner, types.NoOwner, types.NoOwner, types.NoOwner},
	}
	require.Equal(t, []int{0, 2, 1, 1, 2, types.NoOwner}, plan.Fallback(in))
	in.Previous = nil
	require.Equal(t, plan.Fallback(in), plan.Fallback(in))
	require.Empty(t, plan.Fallback(types.AssignmentInput{}))
}

func TestFallbackBalances(t *testing.T) {
	p, err := plan.Prepare(group(1_000, 33))
	require.NoError(t, err)
	counts := make([]int, 33)
	for _, w := range plan.Fallback(p.Strategy) {
		counts[w]++
	}
	for _, n := range counts {
		require.InDelta(t, 1_000/33, n, 1)
	}
}
