package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// solved returns the owner of each partition when a state is followed by another one.
func solved(t require.TestingT, in plan.Input) (plan.Result, map[string]string) {
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	a, err := p.Solve(with(strategy.Sticky()))
	require.NoError(t, err)
	next, err := p.NextOf(a)
	require.NoError(t, err)
	owners := map[string]string{}
	for _, s := range next.State.Slices {
		for i := range s.Entries {
			owners[s.Entries[i].ID()] = s.Worker
		}
	}
	return next, owners
}

// A partition that is barred from its worker goes to another one, with an exchange where balance asks for it, in one commit.
func TestBarKeepsAPartitionOffAWorker(t *testing.T) {
	for _, n := range []int{9, 10, 11} {
		in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1"), target("c", "1")}}
		for i := range n {
			in.Partitions = append(in.Partitions, types.NewPartition(fmt.Sprintf("p%02d", i)))
		}
		first, before := solved(t, in)
		in.Barred = map[string][]string{"p00": {before["p00"]}}
		in.Version, in.Previous = 2, first.State
		second, after := solved(t, in)
		require.NotEqual(t, before["p00"], after["p00"])
		require.LessOrEqual(t, spreadOf(second.State), 1)
		want := 1
		if n == 9 {
			want = 2 // all had three
		}
		require.LessOrEqual(t, second.Moved, want+n%2)

		in.Version, in.Previous = 3, second.State
		again, _ := solved(t, in)
		require.False(t, again.Changed, "the same answer again")
		in.Barred = map[string][]string{"p00": {"a", "b", "c"}}
		_, none := solved(t, in)
		require.NotEmpty(t, none["p00"], "a barred worker is better than none")
	}
}

func spreadOf(s *plan.State) int {
	least, most := 1<<30, 0
	for _, sl := range s.Slices {
		least, most = min(least, len(sl.Entries)), max(most, len(sl.Entries))
	}
	return most - least
}

func TestBarHeedsCapacityAndLabels(t *testing.T) {
	in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1"), target("c", "1")}}
	in.Workers[0].Labels, in.Workers[1].Labels, in.Workers[2].Labels = []string{"x"}, []string{"x"}, []string{"y"}
	p := types.NewPartition("p")
	p.Label = "x"
	in.Partitions = []types.Partition{p}
	in.Barred = map[string][]string{"p": {"a"}}
	_, owners := solved(t, in)
	require.Equal(t, "b", owners["p"])
	in.Barred["p"] = []string{"a", "b"}
	_, owners = solved(t, in)
	require.Contains(t, []string{"a", "b"}, owners["p"], "nobody else carries the label")

	q := types.NewPartition("q")
	q.Label = "x"
	in.Partitions = append(in.Partitions, q)
	in.Barred = map[string][]string{"p": {"a"}, "q": {"a"}}
	in.Workers[1].Capacity.Partitions = 1
	res, owners := solved(t, in)
	require.Len(t, owners, 2, "a barred worker is better than none")
	require.Empty(t, res.State.Parked)
	in.Version, in.Previous = 2, res.State
	res, _ = solved(t, in)
	require.False(t, res.Changed)
}

// The least number of moves of all placements that are even, labels and bars in view, found by trying all of them.
func leastMoves(in plan.Input, may func(worker, partition int) bool, previous []int) (spread, moves int) {
	n, m := len(in.Partitions), len(in.Workers)
	counts := make([]int, m)
	spread, moves = 1<<30, 1<<30
	var try func(i, moved int)
	try = func(i, moved int) {
		if i == n {
			s := slices.Max(counts) - slices.Min(counts)
			if s < spread || s == spread && moved < moves {
				spread, moves = s, moved
			}
			return
		}
		for w := range m {
			if may(w, i) {
				counts[w]++
				cost := 0
				if previous[i] != w {
					cost = 1
				}
				try(i+1, moved+cost)
				counts[w]--
			}
		}
	}
	try(0, 0)
	return spread, moves
}

// On small groups Solve is compared with all that there is, after a change of bars alone: as even as can be, and with the fewest moves.
func TestBarsMoveTheLeastProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{Version: 1}
		m := rapid.IntRange(2, 4).Draw(t, "workers")
		for i := range m {
			in.Workers = append(in.Workers, target(fmt.Sprint("w", i), "1"))
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "partitions") {
			in.Partitions = append(in.Partitions, types.NewPartition(fmt.Sprint("p", i)))
		}
		first, before := solved(t, in)
		in.Barred = map[string][]string{}
		for range rapid.IntRange(1, 2).Draw(t, "bars") {
			id := in.Partitions[rapid.IntRange(0, len(in.Partitions)-1).Draw(t, "partition")].ID()
			in.Barred[id] = []string{before[id]}
		}
		in.Version, in.Previous = 2, first.State
		second, after := solved(t, in)
		previous := make([]int, len(in.Partitions))
		moved := 0
		for i := range in.Partitions {
			id := in.Partitions[i].ID()
			previous[i] = int(before[id][1] - '0')
			require.NotContains(t, in.Barred[id], after[id])
			if after[id] != before[id] {
				moved++
			}
		}
		spread, least := leastMoves(in, func(w, i int) bool { return !slices.Contains(in.Barred[in.Partitions[i].ID()], fmt.Sprint("w", w)) }, previous)
		require.Equal(t, max(spread, 0), spreadOf(second.State))
		require.Equal(t, least, moved, "%v, barred %v: %v", before, in.Barred, after)
		in.Version, in.Previous = 3, second.State
		again, _ := solved(t, in)
		require.False(t, again.Changed)
	})
}

// A worker that is listed and no target keeps what it is told to keep, and nothing else.
func TestListedWorkerKeepsSome(t *testing.T) {
	in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1")}}
	for i := range 6 {
		in.Partitions = append(in.Partitions, types.NewPartition(fmt.Sprintf("p%d", i)))
	}
	res, before := solved(t, in)
	first := res.State
	gone := ""
	for id, w := range before {
		if w == "a" {
			gone = id
		}
	}
	in.Version, in.Previous = 2, first
	in.Workers[0].Target, in.Workers[0].Listed = false, true
	in.Workers[0].Keep = func(id string) bool { return id != gone }
	_, after := solved(t, in)
	for id, w := range before {
		if id == gone {
			w = "b"
		}
		require.Equal(t, w, after[id])
	}
	in.Workers[0].Keep = nil
	res, all := solved(t, in)
	for _, w := range all {
		require.Equal(t, "b", w)
	}
	require.Len(t, res.State.Slices, 2, "it is listed with nothing")
}
