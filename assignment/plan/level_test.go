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

// Partitions of equal cost are spread as evenly as labels allow, whatever labels workers have: compared with all placements there are.
func TestLabelsAreLevelProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := plan.Input{SharedUnlabeled: true}
		m := rapid.IntRange(2, 4).Draw(t, "workers")
		for range rapid.IntRange(1, 3).Draw(t, "steps") {
			in.Workers, in.Partitions = nil, nil
			for i := range m {
				in.Workers = append(in.Workers, member(fmt.Sprint("w", i), func(w *plan.Worker) {
					w.Labels = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), rapid.ID[string]).Draw(t, "labels")
				}))
			}
			label := rapid.SampledFrom([]string{"", "x", "y", "z"})
			for i := range rapid.IntRange(1, 8).Draw(t, "partitions") {
				p := types.Partition{Keys: []string{fmt.Sprint("p", i)}, Label: label.Draw(t, "label")}
				if p.Label == "" || slices.ContainsFunc(in.Workers, func(w plan.Worker) bool { return slices.Contains(w.Labels, p.Label) }) {
					in.Partitions = append(in.Partitions, p)
				}
			}
			res := solve(t, in, strategy.Sticky())
			squares, most := 0, 0
			for _, s := range res.State.Slices {
				squares += len(s.Entries) * len(s.Entries)
				most = max(most, len(s.Entries))
			}
			best, least := levelest(in)
			require.Equal(t, least, most, "the most of one worker: %s", describe(res.State))
			require.Equal(t, best, squares, describe(res.State))
			in.Previous = res.State
		}
	})
}

// levelest tries all placements for the least sum of squares, and the least maximum.
func levelest(in plan.Input) (squares, most int) {
	squares, most = 1<<30, 1<<30
	counts := make([]int, len(in.Workers))
	var try func(i int)
	try = func(i int) {
		if i == len(in.Partitions) {
			sum := 0
			for _, n := range counts {
				sum += n * n
			}
			squares, most = min(squares, sum), min(most, slices.Max(counts))
			return
		}
		for w := range in.Workers {
			if l := in.Partitions[i].Label; l == "" || slices.Contains(in.Workers[w].Labels, l) {
				counts[w]++
				try(i + 1)
				counts[w]--
			}
		}
	}
	try(0)
	return squares, most
}

// What is level stays when nothing changes, and a worker that leaves and comes back costs not much more than what it had.
func TestLevelMovesLittle(t *testing.T) {
	in := plan.Input{}
	for i := range 30 {
		in.Workers = append(in.Workers, labelled(fmt.Sprintf("w%02d", i), fmt.Sprint("l", i%5), fmt.Sprint("l", (i+1)%5)))
	}
	for l := range 5 {
		in.Partitions = append(in.Partitions, many(fmt.Sprint("l", l), 40+20*l)...)
	}
	first := solve(t, in, strategy.Sticky())
	require.LessOrEqual(t, spreadOf(first.State), 1)
	all := in.Workers
	in.Previous, in.Workers = first.State, slices.Delete(slices.Clone(all), 7, 8)
	left := solve(t, in, strategy.Sticky())
	had := len(first.State.Slices[7].Entries)
	require.LessOrEqual(t, spreadOf(left.State), 1)
	t.Logf("it had %d: %d move when it leaves", had, left.Moved)
	require.LessOrEqual(t, left.Moved, 2*had)
	in.Previous, in.Workers = left.State, all
	back := solve(t, in, strategy.Sticky())
	require.LessOrEqual(t, spreadOf(back.State), 1)
	t.Logf("%d when it is back", back.Moved)
	require.LessOrEqual(t, back.Moved, 2*had)
}

// A partition finds room where another one can make it, in another pool.
func TestRoomIsMade(t *testing.T) {
	in := plan.Input{Partitions: many("x", 2), Workers: []plan.Worker{
		member("a", func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = []string{"x"}, 1 }),
		member("b", func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = []string{"x", "y"}, 2 }),
		member("c", func(w *plan.Worker) { w.Labels, w.Capacity.Partitions = []string{"y"}, 1 }),
	}}
	in.Workers[0].Capacity.Partitions = 2
	first := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[x:1], b map[x:1], c map[]", describe(first.State))
	in.Partitions, in.Previous = slices.Concat(many("x", 2), many("y", 3)), first.State
	second := solve(t, in, strategy.Sticky())
	require.Equal(t, "a map[x:2], b map[y:2], c map[y:1]", describe(second.State))
}
