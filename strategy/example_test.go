package strategy_test

import (
	"context"
	"fmt"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// Ten partitions on two workers; a third one joins.
func ExampleSticky() {
	in := types.AssignmentInput{
		Workers:    []types.Worker{{ID: "a"}, {ID: "b"}, {ID: "c"}},
		Partitions: partitions(10, 1, nil),
		Previous:   []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
	}
	owners, err := strategy.Sticky().Assign(context.Background(), in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(owners)
	fmt.Println("moved", strategy.Moves(in, owners), "of at least", strategy.MinimumMoves(in))
	// Output:
	// [0 1 0 1 0 1 2 1 2 2]
	// moved 3 of at least 3
}

func ExampleConsistentHash() {
	s := strategy.ConsistentHash(strategy.WithLoadFactor(0.9))
	fmt.Println(s.Validate())
	// Output:
	// parti: invalid configuration: load factor 0.9: it must be above 1 (at least 1.001) and at most 10; leave WithLoadFactor out for 1.1
}

func ExampleRoundRobin() {
	in := types.AssignmentInput{Workers: []types.Worker{{ID: "a"}, {ID: "b"}}, Partitions: partitions(5, 1, nil)}
	owners, _ := strategy.RoundRobin().Assign(context.Background(), in)
	fmt.Println(owners)
	// Output: [0 1 0 1 0]
}
