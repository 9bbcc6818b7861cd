package strategy_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// input draws an input with any previous owners.
func input(t *rapid.T, weight func(i int) int64) types.AssignmentInput {
	m := rapid.IntRange(1, 20).Draw(t, "workers")
	n := rapid.IntRange(0, 200).Draw(t, "partitions")
	in := types.AssignmentInput{Workers: workers(m), Partitions: partitions(n, rapid.IntRange(1, 5).Draw(t, "kinds"), weight)}
	in.Previous = rapid.SliceOfN(rapid.IntRange(types.NoOwner, m-1), n, n).Draw(t, "previous")
	return in
}

func drawnWeight(t *rapid.T) func(int) int64 {
	heaviest := rapid.SampledFrom([]int64{2, 5, 30, 1000, types.MaxWeight}).Draw(t, "heaviest")
	g := rapid.Int64Range(1, heaviest)
	return func(int) int64 { return g.Draw(t, "weight") }
}

// bound is a load that the busiest worker cannot be kept below: see the doc of limitsOf.
func bound(in types.AssignmentInput, mean float64) float64 {
	var cost []int64
	for _, p := range in.Partitions {
		cost = append(cost, -p.Cost())
	}
	slices.Sort(cost) // heaviest first
	most := math.Ceil(mean)
	for k := 0; k*len(in.Workers) < len(cost); k++ {
		last, sum := k*len(in.Workers), 0.0
		for _, c := range cost[last-k : last+1] {
			sum -= float64(c)
		}
		most = max(most, sum)
	}
	return most
}

func TestStickyCountsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, nil)
		out := assign(t, strategy.Sticky(), in)
		require.LessOrEqual(t, spread(counts(in, out, "")), 1)
		require.Equal(t, strategy.MinimumMoves(in), strategy.Moves(in, out))
		in.Previous = out
		require.Equal(t, out, assign(t, strategy.Sticky(), in))
	})
}

func TestStickyWeightsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, drawnWeight(t))
		out := assign(t, strategy.Sticky(), in)
		// If something had to be done, the limit holds, but for a worker that has nothing light enough to give away. If not, the
		// same is true within what a drift of ±5 % can have made of it.
		drift, slack := 1.0, 0.0
		if strategy.Moves(in, out) == 0 && !slices.Contains(in.Previous, types.NoOwner) {
			drift, slack = 1.05/0.95, 3
		}
		load, mean := loads(in, out)
		limit := max(1.05*mean, bound(in, mean))
		for w, l := range load {
			lightest := int64(types.MaxWeight)
			for i, o := range out {
				if o == w {
					lightest = min(lightest, in.Partitions[i].Cost())
				}
			}
			require.LessOrEqual(t, float64(l), drift*max(limit, float64(slices.Min(load)+lightest))+slack)
		}
		in.Previous = out
		require.Equal(t, out, assign(t, strategy.Sticky(), in))
	})
}

// Row 30, second half: weights jitter by up to 5 %, 0 moves; from anything that Sticky made out of anything.
func TestRow30JitterMovesNothingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, rapid.SampledFrom([]func(int) int64{nil, mixedWeight, drawnWeight(t)}).Draw(t, "weights"))
		for i := range in.Partitions { // so that 5 % is a whole number
			in.Partitions[i].Weight = min(in.Partitions[i].Cost(), types.MaxWeight/200) * 100
		}
		if rapid.Bool().Draw(t, "fresh") {
			in.Previous = nil
		} else if len(in.Partitions) > 0 {
			in.Previous[0] = types.NoOwner // something has to move, so the tight limits hold afterwards
		}
		in.Previous = assign(t, strategy.Sticky(), in)
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 0))
		edge := rapid.Bool().Draw(t, "at the edge")
		worker := rapid.IntRange(0, len(in.Workers)-1).Draw(t, "worker")
		in.Partitions = slices.Clone(in.Partitions)
		for i := range in.Partitions {
			w := in.Partitions[i].Weight / 100
			switch {
			case edge && in.Previous[i] == worker:
				in.Partitions[i].Weight = 105 * w
			case edge:
				in.Partitions[i].Weight = 95 * w
			default:
				in.Partitions[i].Weight = w * (95 + r.Int64N(11))
			}
		}
		require.Zero(t, strategy.Moves(in, assign(t, strategy.Sticky(), in)))
	})
}

// Light partitions in the usual mix: after any join or leave the busiest worker has ≤ 1.05 × mean, and at most twice as many
// partitions move as must: of a leaver's none of the others', for a joiner what fills it.
func TestStickyMixedChurnProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(2, 12).Draw(t, "workers")
		n := m * rapid.IntRange(150, 300).Draw(t, "partitions per worker")
		in := types.AssignmentInput{Workers: workers(m), Partitions: partitions(n, 1, mixedWeight)}
		out := assign(t, strategy.Sticky(), in)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if m = len(in.Workers); m == 1 || m < 16 && rapid.Bool().Draw(t, "join") {
				in = joined(in, out)
				in.Workers = workers(m + 1)
			} else {
				in = left(in, out, rapid.IntRange(0, m-1).Draw(t, "leaver"))
			}
			orphans := 0
			for _, w := range in.Previous {
				if w == types.NoOwner {
					orphans++
				}
			}
			out = assign(t, strategy.Sticky(), in)
			load, mean := loads(in, out)
			require.LessOrEqual(t, float64(slices.Max(load)), 1.05*mean+1)
			fair := n / len(in.Workers)
			require.LessOrEqual(t, strategy.Moves(in, out)+orphans, 2*max(fair, orphans))
		}
	})
}

// An input that changes while nobody looks: order of workers and memory do not matter, only what is in it.
func TestStickyIsAFunctionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t, drawnWeight(t))
		before := slices.Clone(in.Previous)
		a := assign(t, strategy.Sticky(), in)
		b, err := strategy.Sticky().Assign(context.Background(), in)
		require.NoError(t, err)
		require.Equal(t, a, b)
		require.Equal(t, before, in.Previous)
	})
}
