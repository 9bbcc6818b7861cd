package strategytest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/partigo/parti/types"
)

// scenario is an input with a name.
type scenario struct {
	name string
	in   types.AssignmentInput
	// after makes the input to check from in, whose Previous holds the strategy's answer to it.
	after func(in types.AssignmentInput) types.AssignmentInput
}

// scenarios are the inputs that every strategy is tried on. They are the same in each run.
func scenarios() []scenario {
	equal := func(w, p int) types.AssignmentInput { return Input(workers(w), partitions(p, 2, nil), nil) }
	mixed := func(w, p int) types.AssignmentInput { return Input(workers(w), partitions(p, 2, mixedWeight), nil) }
	huge := func(int) int64 { return types.MaxWeight }
	giant := func(i int) int64 {
		if i == 0 {
			return types.MaxWeight
		}
		return 1
	}
	return []scenario{
		{name: "no partitions", in: equal(3, 0)},
		{name: "one worker", in: equal(1, 20)},
		{name: "one partition", in: equal(4, 1)},
		{name: "more workers than partitions", in: equal(9, 4)},
		{name: "equal weights", in: equal(7, 100)},
		{name: "mixed weights", in: mixed(7, 400)},
		{name: "largest weights", in: Input(workers(5), partitions(64, 2, huge), nil)},
		{name: "one giant", in: Input(workers(5), partitions(64, 2, giant), nil)},
		{name: "previous owner unknown for some", in: scatter(equal(6, 90), 0.3)},
		{name: "previous owners at random", in: scatter(equal(6, 90), 0)},
		{name: "previous owners at random, mixed weights", in: scatter(mixed(6, 300), 0.1)},
		{name: "a worker joins", in: equal(8, 100), after: join},
		{name: "a worker leaves", in: equal(8, 100), after: leave},
		{name: "a worker joins, mixed weights", in: mixed(8, 400), after: join},
		{name: "a worker leaves, mixed weights", in: mixed(8, 400), after: leave},
		{name: "partitions are added", in: equal(5, 40), after: grow},
	}
}

func workers(n int) []types.Worker {
	ws := make([]types.Worker, n)
	for i := range ws {
		ws[i].ID = fmt.Sprintf("worker-%d", i)
	}
	return ws
}

// partitions makes n partitions of some kinds. weight may be nil.
func partitions(n, kinds int, weight func(i int) int64) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition(fmt.Sprintf("kind-%d", i%kinds), fmt.Sprint(i/kinds))
		if weight != nil {
			ps[i].Weight = weight(i)
		}
	}
	return ps
}

// mixedWeight is the mix that performance is measured with: 1 % weigh 20, 9 % weigh 3, the others 1.
func mixedWeight(i int) int64 {
	switch {
	case i%100 == 0:
		return 20
	case i%11 == 0:
		return 3
	}
	return 1
}

// scatter gives every partition an owner at random, or none with the given probability.
func scatter(in types.AssignmentInput, none float64) types.AssignmentInput {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range in.Previous {
		if in.Previous[i] = r.IntN(len(in.Workers)); r.Float64() < none {
			in.Previous[i] = types.NoOwner
		}
	}
	return in
}

// join adds a worker that sorts between the others.
func join(in types.AssignmentInput) types.AssignmentInput {
	return Input(append(slices.Clone(in.Workers), types.Worker{ID: "worker-10"}), in.Partitions, Owners(in, in.Previous))
}

func leave(in types.AssignmentInput) types.AssignmentInput {
	return Input(in.Workers[1:], in.Partitions, Owners(in, in.Previous))
}

func grow(in types.AssignmentInput) types.AssignmentInput {
	more := append(slices.Clone(in.Partitions), types.NewPartition("added", "1"), types.NewPartition("kind-0", "added"))
	return Input(in.Workers, more, Owners(in, in.Previous))
}
