package plan_test

import (
	"fmt"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// solved returns the owner of each partition when a state is followed by another one under the given bars.
func solved(t *testing.T, in plan.Input, barred func(id, worker string) bool) (*plan.State, map[string]string) {
	t.Helper()
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	a, err := p.Solve(with(strategy.Sticky()))
	require.NoError(t, err)
	next, err := p.NextOf(p.Bar(a, barred))
	require.NoError(t, err)
	owners := map[string]string{}
	for _, s := range next.State.Slices {
		for i := range s.Entries {
			owners[s.Entries[i].ID()] = s.Worker
		}
	}
	return next.State, owners
}

func TestBarKeepsAPartitionOffAWorker(t *testing.T) {
	in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1"), target("c", "1")}}
	for i := range 9 {
		in.Partitions = append(in.Partitions, types.NewPartition(fmt.Sprintf("p%d", i)))
	}
	first, before := solved(t, in, nil)
	bar := func(id, worker string) bool { return id == "p0" && worker == before["p0"] }
	in.Version, in.Previous = 2, first
	second, after := solved(t, in, bar)
	require.NotEqual(t, before["p0"], after["p0"])
	moved := 0
	for id, w := range before {
		if after[id] != w {
			moved++
		}
	}
	require.Equal(t, 1, moved)

	// The exchange for balance may follow at the next decision; after that the answer stays, and the bar holds throughout.
	in.Version, in.Previous = 3, second
	third, settled := solved(t, in, bar)
	require.NotEqual(t, before["p0"], settled["p0"])
	in.Version, in.Previous = 4, third
	_, again := solved(t, in, bar)
	require.Equal(t, settled, again, "the same answer again")

	in.Version = 5
	_, none := solved(t, in, func(id, _ string) bool { return id == "p0" })
	require.NotEmpty(t, none["p0"], "a barred worker is better than none")
}

func TestBarHeedsCapacityAndLabels(t *testing.T) {
	in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1"), target("c", "1")}}
	in.Workers[0].Labels, in.Workers[1].Labels, in.Workers[2].Labels = []string{"x"}, []string{"x"}, []string{"y"}
	p := types.NewPartition("p")
	p.Label = "x"
	in.Partitions = []types.Partition{p}
	_, owners := solved(t, in, func(_, worker string) bool { return worker == "a" })
	require.Equal(t, "b", owners["p"])
	in.Partitions = append(in.Partitions, types.NewPartition("q"), types.NewPartition("r"))
	in.Workers[1].Capacity.Partitions = 0
	_, owners = solved(t, in, func(_, worker string) bool { return worker == "a" || worker == "b" })
	require.Contains(t, []string{"a", "b"}, owners["p"], "nobody else carries the label")
}

// A worker that is listed and no target keeps what it is told to keep, and nothing else.
func TestListedWorkerKeepsSome(t *testing.T) {
	in := plan.Input{Version: 1, Workers: []plan.Worker{target("a", "1"), target("b", "1")}}
	for i := range 6 {
		in.Partitions = append(in.Partitions, types.NewPartition(fmt.Sprintf("p%d", i)))
	}
	first, before := solved(t, in, nil)
	gone := ""
	for id, w := range before {
		if w == "a" {
			gone = id
		}
	}
	in.Version, in.Previous = 2, first
	in.Workers[0].Target, in.Workers[0].Listed = false, true
	in.Workers[0].Keep = func(id string) bool { return id != gone }
	_, after := solved(t, in, nil)
	for id, w := range before {
		if id == gone {
			w = "b"
		}
		require.Equal(t, w, after[id])
	}
	in.Workers[0].Keep = nil
	state, all := solved(t, in, nil)
	for _, w := range all {
		require.Equal(t, "b", w)
	}
	require.Len(t, state.Slices, 2, "it is listed with nothing")
}
