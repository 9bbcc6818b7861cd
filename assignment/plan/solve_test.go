package plan_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// with makes a strategy what Solve asks.
func with(s types.AssignmentStrategy) func(types.AssignmentInput) ([]int, error) {
	return func(in types.AssignmentInput) ([]int, error) { return s.Assign(context.Background(), in) }
}

func member(id string, change func(*plan.Worker)) plan.Worker {
	w := plan.Worker{Holder: types.Holder{Worker: id, Incarnation: "i"}, Target: true}
	if change != nil {
		change(&w)
	}
	return w
}

func labelled(id string, labels ...string) plan.Worker {
	return member(id, func(w *plan.Worker) { w.Labels = labels })
}

func withCapacity(id string, partitions int, weight int64) plan.Worker {
	return member(id, func(w *plan.Worker) { w.Capacity = types.Capacity{Partitions: partitions, Weight: weight} })
}

func many(label string, n int) (ps []types.Partition) {
	for i := range n {
		ps = append(ps, types.Partition{Keys: []string{"p" + label, fmt.Sprintf("%03d", i)}, Label: label})
	}
	return ps
}

// solve makes the commit that follows in.Previous.
func solve(t require.TestingT, in plan.Input, s types.AssignmentStrategy) plan.Result {
	in.Version = 1
	if in.Previous != nil {
		in.Version = in.Previous.Version + 1
	}
	p, err := plan.Prepare(in)
	require.NoError(t, err)
	a, err := p.Solve(with(s))
	require.NoError(t, err)
	res, err := p.NextOf(a)
	require.NoError(t, err)
	return res
}

// owners returns "worker:count" of each worker, and the reasons of what is parked.
func describe(s *plan.State) string {
	var parts []string
	for _, sl := range s.Slices {
		n := map[string]int{}
		for _, e := range sl.Entries {
			n[e.Label]++
		}
		parts = append(parts, fmt.Sprintf("%s %v", sl.Worker, n))
	}
	reasons := map[string]int{}
	for _, e := range s.Parked {
		reasons[e.Reason]++
	}
	if len(reasons) > 0 {
		parts = append(parts, fmt.Sprint(reasons))
	}
	return strings.Join(parts, ", ")
}

func TestPools(t *testing.T) {
	gpu, plain := many("gpu", 6), many("", 12)
	all := slices.Concat(gpu, plain)
	for _, c := range []struct {
		name string
		in   plan.Input
		want string
	}{
		{"dedicated", plan.Input{Partitions: all, Workers: []plan.Worker{labelled("a", "gpu"), labelled("b"), labelled("c")}},
			"a map[gpu:6], b map[:6], c map[:6]"},
		{"dedicated, and no worker without labels", plan.Input{Partitions: all, Workers: []plan.Worker{labelled("a", "gpu"), labelled("b", "ssd")}},
			"a map[:3 gpu:6], b map[:9]"},
		{"shared", plan.Input{Partitions: all, Workers: []plan.Worker{labelled("a", "gpu"), labelled("b"), labelled("c")}, SharedUnlabeled: true},
			"a map[gpu:6], b map[:6], c map[:6]"},
		{"shared, with room beside the labelled", plan.Input{Partitions: slices.Concat(many("gpu", 2), plain),
			Workers: []plan.Worker{labelled("a", "gpu"), labelled("b")}, SharedUnlabeled: true},
			"a map[:5 gpu:2], b map[:7]"},
		{"nobody carries the label", plan.Input{Partitions: all, Workers: []plan.Worker{labelled("a"), labelled("b")}},
			"a map[:6], b map[:6], map[no worker carries label gpu:6]"},
		{"nobody carries the label, spilled", plan.Input{Partitions: all, Workers: []plan.Worker{labelled("a"), labelled("b")},
			Spill: func(string) bool { return true }}, "a map[:6 gpu:3], b map[:6 gpu:3]"},
		{"several labels on one worker", plan.Input{Partitions: slices.Concat(many("x", 6), many("y", 6)),
			Workers: []plan.Worker{labelled("a", "x"), labelled("b", "x", "y"), labelled("c", "y")}},
			"a map[x:4], b map[x:2 y:2], c map[y:4]"},
		{"the same labels on all", plan.Input{Partitions: slices.Concat(many("x", 3), many("y", 3)),
			Workers: []plan.Worker{labelled("a", "x", "y"), labelled("b", "x", "y")}}, "a map[x:2 y:1], b map[x:1 y:2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := solve(t, c.in, strategy.Sticky())
			require.Equal(t, c.want, describe(res.State))
			c.in.Previous = res.State
			again := solve(t, c.in, strategy.Sticky())
			require.False(t, again.Changed, describe(again.State))
		})
	}
}

// A label that comes and goes moves the partitions that need it, and of the others only what balance asks for.
func TestLabelChangeMovesWhatMustMove(t *testing.T) {
	in := plan.Input{Partitions: slices.Concat(many("gpu", 10), many("", 30)),
		Workers: []plan.Worker{labelled("a", "gpu"), labelled("b", "gpu"), labelled("c"), labelled("d"), labelled("e")}}
	first := solve(t, in, strategy.Sticky())
	in.Previous = first.State
	in.Workers[1].Labels = nil // b has no gpu any more
	second := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[gpu:10], b map[:7], c map[:7], d map[:8], e map[:8]", describe(second.State))
	require.Equal(t, 5+7, second.Moved, "b's five must go, and b gets its share of the others")
	require.Equal(t, 5, second.Forced)
}

func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		name string
		in   plan.Input
		want string
	}{
		{"one is small", plan.Input{Partitions: many("", 30), Workers: []plan.Worker{withCapacity("a", 2, 0), labelled("b"), labelled("c")}},
			"a map[:2], b map[:14], c map[:14]"},
		{"all are too small", plan.Input{Partitions: many("", 10), Workers: []plan.Worker{withCapacity("a", 2, 0), withCapacity("b", 5, 0)}},
			"a map[:2], b map[:5], map[no worker has room:3]"},
		{"by weight", plan.Input{Partitions: many("", 10), Workers: []plan.Worker{withCapacity("a", 0, 250), withCapacity("b", 0, 10*types.DefaultWeight)}},
			"a map[:2], b map[:8]"},
		{"both bounds", plan.Input{Partitions: many("", 10), Workers: []plan.Worker{withCapacity("a", 4, 350)}},
			"a map[:3], map[no worker has room:7]"},
		{"within a label", plan.Input{Partitions: slices.Concat(many("x", 4), many("", 4)), Workers: []plan.Worker{
			member("a", func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = []string{"x"}, 3 }), labelled("b")}},
			"a map[x:3], b map[:4], map[no worker has room for label x:1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := solve(t, c.in, strategy.Sticky())
			require.Equal(t, c.want, describe(res.State))
			c.in.Previous = res.State
			require.False(t, solve(t, c.in, strategy.Sticky()).Changed, "no plan satisfies it, and nothing changes")
		})
	}
}

// What is parked for want of room is placed when there is room, and nothing else moves for it.
func TestRoomAppears(t *testing.T) {
	in := plan.Input{Partitions: many("", 10), Workers: []plan.Worker{withCapacity("a", 4, 0), withCapacity("b", 4, 0)}}
	first := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[:4], b map[:4], map[no worker has room:2]", describe(first.State))
	in.Previous = first.State
	in.Workers[1].Capacity.Partitions = 9
	second := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[:4], b map[:6]", describe(second.State))
	require.Zero(t, second.Moved)
	in.Previous = second.State
	in.Workers[1].Capacity.Partitions = 3
	third := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[:4], b map[:3], map[no worker has room:3]", describe(third.State))
	require.Zero(t, third.Moved)
}

// Whatever the strategy, labels and capacity hold, what is parked fits nowhere, and the same question gives the same answer.
func TestSolveProperties(t *testing.T) {
	strategies := map[string]types.AssignmentStrategy{
		"sticky": strategy.Sticky(), "round robin": strategy.RoundRobin(),
		"hash": strategy.ConsistentHash(), "weighted": strategy.WeightedConsistentHash(),
	}
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{SharedUnlabeled: rapid.Bool().Draw(t, "shared")}
		spill := rapid.Bool().Draw(t, "spill")
		in.Spill = func(string) bool { return spill }
		label := rapid.SampledFrom(labelNames)
		weights := rapid.SampledFrom([][]int64{{0}, {0, 50, 100, 150, 1000}}).Draw(t, "weights")
		for i := range rapid.IntRange(0, 40).Draw(t, "partitions") {
			in.Partitions = append(in.Partitions, types.Partition{Keys: []string{fmt.Sprintf("p%02d", i)},
				Label: label.Draw(t, "label"), Weight: rapid.SampledFrom(weights).Draw(t, "weight")})
		}
		name := rapid.SampledFrom([]string{"sticky", "round robin", "hash", "weighted"}).Draw(t, "strategy")
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			in.Workers, in.Barred = nil, map[string][]string{}
			for range rapid.IntRange(0, 2).Draw(t, "bars") {
				in.Barred[fmt.Sprintf("p%02d", rapid.IntRange(0, 20).Draw(t, "barred"))] = []string{fmt.Sprint("w", rapid.IntRange(0, 5).Draw(t, "from"))}
			}
			for i := range 6 {
				if !rapid.Bool().Draw(t, "live") {
					continue
				}
				in.Workers = append(in.Workers, member(fmt.Sprint("w", i), func(w *plan.Worker) {
					w.Labels = rapid.SliceOfDistinct(rapid.SampledFrom(labelNames[1:]), rapid.ID[string]).Draw(t, "labels")
					w.Capacity.Partitions = rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(t, "capacity")
					w.Capacity.Weight = rapid.SampledFrom([]int64{0, 0, 300, 700, 2000}).Draw(t, "capacity by weight")
				}))
			}
			res := solve(t, in, strategies[name])
			checkLimits(t, in, res.State)
			in.Previous = res.State
			again := solve(t, in, strategies[name])
			require.False(t, again.Changed, "%s: %s and then %s", name, describe(res.State), describe(again.State))
			in.Previous = again.State
		}
	})
}

func checkLimits(t require.TestingT, in plan.Input, s *plan.State) {
	carried := map[string]bool{}
	room := map[string]func(cost int64) bool{}
	workers := map[string]plan.Worker{}
	plain := 0
	for _, w := range in.Workers {
		workers[w.Worker] = w
		for _, l := range w.Labels {
			carried[l] = true
		}
		if len(w.Labels) == 0 {
			plain++
		}
	}
	free := func(w plan.Worker) bool { return in.SharedUnlabeled || plain == 0 || len(w.Labels) == 0 }
	for _, sl := range s.Slices {
		w := workers[sl.Worker]
		var cost int64
		for _, e := range sl.Entries {
			cost += e.Cost()
			switch {
			case carried[e.Label]:
				require.Contains(t, w.Labels, e.Label)
			default:
				require.True(t, free(w), "%s has no label for it and is on %s", e.ID(), sl.Worker)
			}
		}
		require.True(t, w.Capacity.Admits(len(sl.Entries), cost), "%s has %d partitions of cost %d", sl.Worker, len(sl.Entries), cost)
		room[sl.Worker] = func(more int64) bool { return w.Capacity.Admits(len(sl.Entries)+1, cost+more) }
	}
	for _, e := range s.Parked {
		for _, w := range in.Workers {
			eligible := carried[e.Label] && slices.Contains(w.Labels, e.Label) || !carried[e.Label] && (e.Label == "" || in.Spill(e.Label)) && free(w)
			require.False(t, eligible && room[w.Worker](e.Cost()), "%s is parked (%s), and %s has room", e.ID(), e.Reason, w.Worker)
		}
	}
}

func TestSolveRefuses(t *testing.T) {
	p, err := plan.Prepare(plan.Input{Version: 1, Partitions: many("", 2), Workers: []plan.Worker{labelled("a")}})
	require.NoError(t, err)
	for _, owners := range [][]int{nil, {0}, {0, 1}, {0, types.NoOwner}} {
		_, err := p.Solve(func(types.AssignmentInput) ([]int, error) { return owners, nil })
		require.ErrorIs(t, err, types.ErrInvalidAssignment)
	}
	_, err = p.NextOf(plan.Answer{Owners: []int{0, types.NoOwner}})
	require.ErrorIs(t, err, types.ErrInvalidAssignment, "parked without a reason")
	res, err := p.NextOf(p.SolveFallback())
	require.NoError(t, err)
	require.Equal(t, "a map[:2]", describe(res.State))
}

// A worker that is listed and no target keeps its place in the commit, and gets nothing.
func TestListedWithoutBeingATarget(t *testing.T) {
	in := plan.Input{Partitions: many("", 4), Workers: []plan.Worker{labelled("a"), member("b", func(w *plan.Worker) { w.Target, w.Listed = false, true })}}
	res := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[:4], b map[]", describe(res.State))
}
