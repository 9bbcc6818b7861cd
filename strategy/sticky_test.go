package strategy_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// Rows 27, 28 and 48: equal weights, a worker joins.
func TestStickyJoin(t *testing.T) {
	for _, c := range []struct {
		name                      string
		partitions, kinds, before int
		moves                     int
	}{
		{"row 27: two kinds of 18, 8 to 9 workers", 36, 2, 8, 4},
		{"row 28: 10 partitions, 2 to 3 workers", 10, 1, 2, 3},
		{"row 48: 1,000 partitions, 50 to 51 workers", 1000, 1, 50, 19},
		{"a worker too many", 5, 1, 5, 0},
		{"givers of either kind", 40, 2, 8, 4},
		{"nine kinds", 180, 9, 11, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := types.AssignmentInput{Workers: workers(c.before), Partitions: partitions(c.partitions, c.kinds, nil)}
			in = joined(in, assign(t, strategy.Sticky(), in))
			out := assign(t, strategy.Sticky(), in)
			require.Equal(t, c.moves, strategy.Moves(in, out))
			require.Equal(t, c.moves, strategy.MinimumMoves(in))
			require.LessOrEqual(t, spread(counts(in, out, "")), 1)
			for k := range c.kinds {
				kind := in.Partitions[k*c.partitions/c.kinds].Keys[0]
				require.LessOrEqual(t, spread(counts(in, out, kind)), 1, kind)
			}
		})
	}
}

// Row 27 once more: members come one by one, then leave again; each kind stays even throughout.
func TestRow27EachKindStaysEvenOneByOne(t *testing.T) {
	in := types.AssignmentInput{Workers: workers(1), Partitions: partitions(36, 2, nil)}
	out := assign(t, strategy.Sticky(), in)
	even := func() {
		t.Helper()
		require.LessOrEqual(t, spread(counts(in, out, "")), 1)
		require.Equal(t, strategy.MinimumMoves(in), strategy.Moves(in, out))
		for _, kind := range []string{"kind-00000", "kind-00001"} {
			require.LessOrEqual(t, spread(counts(in, out, kind)), 1, "%d workers: %v of all %v", len(in.Workers), counts(in, out, kind), counts(in, out, ""))
		}
	}
	for range 12 {
		in = joined(in, out)
		in.Workers = workers(len(in.Workers))
		out = assign(t, strategy.Sticky(), in)
		even()
	}
	for len(in.Workers) > 1 {
		in = left(in, out, len(in.Workers)/2)
		out = assign(t, strategy.Sticky(), in)
		even()
	}
}

// Row 30, first half: the same input twice.
func TestRow30SameInputTwiceMovesNothing(t *testing.T) {
	for name, weight := range map[string]func(int) int64{"equal": nil, "mixed": mixedWeight} {
		t.Run(name, func(t *testing.T) {
			in := types.AssignmentInput{Workers: workers(30), Partitions: partitions(2000, 4, weight)}
			out := assign(t, strategy.Sticky(), in)
			in = joined(in, out)
			out = assign(t, strategy.Sticky(), in)
			in.Previous = out
			require.Equal(t, out, assign(t, strategy.Sticky(), in))
		})
	}
}

func TestStickyLeaveMovesOnlyTheLeavers(t *testing.T) {
	in := types.AssignmentInput{Workers: workers(51), Partitions: partitions(1000, 3, nil)}
	in = left(in, assign(t, strategy.Sticky(), in), 17)
	out := assign(t, strategy.Sticky(), in)
	require.Zero(t, strategy.Moves(in, out))
	require.LessOrEqual(t, spread(counts(in, out, "")), 1)
}

func TestStickyGiants(t *testing.T) {
	for _, c := range []struct {
		name   string
		weight []int64
		before []int
		after  []int64 // loads, sorted
	}{
		{"a giant has a worker of its own; the rest is shared", []int64{20, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int64{4, 5, 20}},
		{"what lies beside the giant goes away", []int64{20, 1, 1, 1, 1, 1, 1, 1, 1}, []int{0, 0, 0, 0, 0, 1, 1, 2, 2}, []int64{4, 4, 20}},
		{"more giants than room", []int64{9, 9, 9, 9, 1}, []int{0, 0, 0, 0, 0}, []int64{9, 10, 18}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := types.AssignmentInput{
				Workers:    workers(3),
				Partitions: partitions(len(c.weight), 1, func(i int) int64 { return c.weight[i] }),
				Previous:   c.before,
			}
			load, _ := loads(in, assign(t, strategy.Sticky(), in))
			slices.Sort(load)
			require.Equal(t, c.after, load)
		})
	}
}

// Weights that types.Partition.Validate refuses, so that the sum would overflow: they are scaled down.
func TestStickySumsBeyondInt64(t *testing.T) {
	weight := func(i int) int64 { return math.MaxInt64 - int64(i%2) }
	in := types.AssignmentInput{Workers: workers(10), Partitions: partitions(1000, 1, weight)}
	out := assign(t, strategy.Sticky(), in)
	require.LessOrEqual(t, spread(counts(in, out, "")), 1)
	in.Previous = out
	require.Equal(t, out, assign(t, strategy.Sticky(), in))
}

// A context that ends while Assign runs ends Assign.
func TestStickyHonoursTheContextMidway(t *testing.T) {
	for name, weight := range map[string]func(int) int64{"equal": nil, "mixed": mixedWeight} {
		t.Run(name, func(t *testing.T) {
			in := types.AssignmentInput{Workers: workers(100), Partitions: partitions(15_000, 1, weight), Previous: make([]int, 15_000)}
			ctx := &endsAfter{Context: context.Background(), looks: 2}
			_, err := strategy.Sticky().Assign(ctx, in)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// endsAfter is a context that has ended when it is looked at for the looks-th time.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}
