package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// fallback makes the commit that follows in.Previous without a strategy.
func fallback(t require.TestingT, in plan.Input) plan.Result {
	in.Version = 1
	if in.Previous != nil {
		in.Version = in.Previous.Version + 1
	}
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	res, err := p.NextOf(p.SolveFallback())
	require.NoError(t, err)
	return res
}

// mixed is a group whose workers carry none to three of three labels, with capacities or without, and partitions of equal cost or not. It
// is the same for the same seed.
func mixed(seed uint64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	in := plan.Input{SharedUnlabeled: r.IntN(2) == 0, Spill: func(string) bool { return false }}
	equal, bounded := r.IntN(2) == 0, r.IntN(2) == 0
	for i := range 10 + r.IntN(50) {
		p := types.Partition{Keys: []string{fmt.Sprintf("p%02d", i)}, Label: []string{"", "x", "y", "z"}[r.IntN(4)]}
		if !equal {
			p.Weight = 50 + r.Int64N(200)
		}
		in.Partitions = append(in.Partitions, p)
	}
	for i := range 2 + r.IntN(5) {
		in.Workers = append(in.Workers, member(fmt.Sprint("w", i), func(w *plan.Worker) {
			for _, l := range []string{"x", "y", "z"} {
				if r.IntN(2) == 0 {
					w.Labels = append(w.Labels, l)
				}
			}
			if bounded {
				w.Capacity.Partitions = 3 + r.IntN(8)
				w.Capacity.Weight = []int64{0, 800}[r.IntN(2)]
			}
		}))
	}
	return in
}

// plain counts the workers without labels.
func plain(in plan.Input) (n int) {
	for _, w := range in.Workers {
		if len(w.Labels) == 0 {
			n++
		}
	}
	return n
}

// requireKept: all that ran before and is not excepted runs on the same worker.
func requireKept(t *testing.T, before, after *plan.State, except string, seed uint64) {
	t.Helper()
	now := ownersOf(after)
	for id, o := range ownersOf(before) {
		if o.Worker != except {
			require.Equal(t, o.Worker, now[id].Worker, "seed %d: %s ran on %s; now %s", seed, id, o.Worker, describe(after))
		}
	}
}

func TestRollingRestartInPlaceMovesNothing(t *testing.T) {
	for seed := range uint64(40) {
		in := mixed(seed)
		if !in.SharedUnlabeled && plain(in) == 1 {
			continue // while that one is away, others may have what is parked without a label
		}
		in.Previous = solve(t, in, strategy.Sticky()).State
		for i := range in.Workers {
			waits := in
			waits.Workers = slices.Clone(in.Workers)
			waits.Workers[i].Target, waits.Workers[i].GraceUntil = false, 5
			res := fallback(t, waits)
			requireKept(t, in.Previous, res.State, "", seed)

			in.Previous = res.State
			in.Workers[i].Incarnation += "'"
			res = fallback(t, in)
			requireKept(t, in.Previous, res.State, "", seed)
			in.Previous = res.State
		}
	}
}

// Where the strategy fails, only what has lost its owner moves, as far as there is room; and then nothing more does.
func TestFallbackMovesOnlyWhatLostItsOwner(t *testing.T) {
	for seed := range uint64(100) {
		in := mixed(seed)
		first := solve(t, in, strategy.Sticky())
		in.Previous = first.State
		again := fallback(t, in)
		requireKept(t, first.State, again.State, "", seed)

		gone := in.Workers[0].Worker
		in.Workers = in.Workers[1:]
		res := fallback(t, in)
		checkLimits(t, in, res.State)
		requireKept(t, first.State, res.State, gone, seed)
		in.Previous = res.State
		require.False(t, fallback(t, in).Changed, "seed %d: %s", seed, describe(res.State))
	}
}

// What has to go for a capacity that shrank is placed before what nobody has, also of a pool that comes earlier.
func TestFallbackPlacesWhatRanFirst(t *testing.T) {
	in := plan.Input{Partitions: many("y", 6), Workers: []plan.Worker{
		member("a", func(w *plan.Worker) { w.Labels = []string{"y"} }),
	}}
	in.Previous = solve(t, in, strategy.Sticky()).State
	in.Workers[0].Capacity.Partitions = 2
	in.Workers = append(in.Workers, member("b", func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = []string{"x", "y"}, 4 }))
	in.Partitions = append(in.Partitions, many("x", 4)...)
	require.Equal(t, "a map[y:2], b map[y:4], map[no worker has room for label x:4]", describe(fallback(t, in).State))
}

// The loads that count are those of all pools together.
func TestFallbackFillsTheLeastLoaded(t *testing.T) {
	in := plan.Input{SharedUnlabeled: true, Partitions: slices.Concat(many("x", 8), many("", 8)),
		Workers: []plan.Worker{labelled("a", "x"), labelled("b"), withCapacity("c", 0, 350)}}
	in.Partitions[0].Weight = 150
	res := fallback(t, in)
	require.Equal(t, "a map[x:8], b map[:5], c map[:3]", describe(res.State))
}

// Without a strategy a partition leaves a worker that is barred from it where another one has room, and stays there where none has.
func TestFallbackHeedsBars(t *testing.T) {
	in := plan.Input{Partitions: many("", 4), Workers: []plan.Worker{withCapacity("a", 2, 0), withCapacity("b", 2, 0)}}
	in.Previous = solve(t, in, strategy.Sticky()).State
	id := in.Previous.Slices[0].Entries[0].ID()
	in.Barred = map[string][]string{id: {"a"}}
	res := fallback(t, in)
	require.Zero(t, res.Moved, "b is full")
	require.Empty(t, res.State.Parked)

	in.Previous, in.Workers[1].Capacity.Partitions = res.State, 3
	res = fallback(t, in)
	require.Equal(t, 1, res.Moved)
	require.Equal(t, "b", ownersOf(res.State)[id].Worker)

	in.Previous, in.Workers = nil, in.Workers[:1]
	in.Workers[0].Capacity.Partitions = 0
	in.Workers = append(in.Workers, withCapacity("b", 1, 0))
	in.Barred[in.Partitions[0].ID()], in.Barred[in.Partitions[1].ID()] = []string{"a"}, []string{"a"}
	res = fallback(t, in)
	require.Equal(t, "a map[:3], b map[:1]", describe(res.State), "a barred worker is better than none")
	in.Previous = res.State
	require.False(t, fallback(t, in).Changed)
}

// New partitions park nothing that runs, where all cost the same.
func TestNewPartitionsParkNothingThatRuns(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 11))
		in := plan.Input{SharedUnlabeled: r.IntN(2) == 0}
		add := func(n int) {
			for range n {
				in.Partitions = append(in.Partitions, types.Partition{
					Keys: []string{fmt.Sprintf("p%03d", len(in.Partitions))}, Label: labelNames[r.IntN(3)],
				})
			}
		}
		add(2 + r.IntN(12))
		for i := range 1 + r.IntN(4) {
			in.Workers = append(in.Workers, member(fmt.Sprint("w", i), func(w *plan.Worker) {
				w.Capacity.Partitions = 4
				for _, l := range labelNames[1:] {
					if r.IntN(2) == 0 {
						w.Labels = append(w.Labels, l)
					}
				}
			}))
		}
		in.Previous = solve(t, in, strategy.Sticky()).State
		add(1 + r.IntN(3))
		res := solve(t, in, strategy.Sticky())
		now := ownersOf(res.State)
		for id, o := range ownersOf(in.Previous) {
			require.Contains(t, now, id, "seed %d: %s ran on %s", seed, id, o.Worker)
		}
	}
}

// A pool with more to choose from leaves room to one that has less, also where costs differ and labels come in another order.
func TestPoolsLeaveEachOtherRoom(t *testing.T) {
	room := func(id string, labels ...string) plan.Worker {
		return member(id, func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = labels, 4 })
	}
	for _, weight := range []int64{100, 101} {
		in := plan.Input{Workers: []plan.Worker{room("a", "x", "y"), room("b", "x")}, Partitions: slices.Concat(many("x", 4), many("y", 4))}
		in.Partitions[0].Weight = weight
		res := solve(t, in, strategy.Sticky())
		require.Equal(t, "a map[y:4], b map[x:4]", describe(res.State))
		in.Previous = res.State
		require.False(t, solve(t, in, strategy.Sticky()).Changed)
	}
}
