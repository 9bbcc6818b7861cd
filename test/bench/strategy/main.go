// Program strategy measures B1 and B2 of test/bench/README.md: one worker joins many, equal and mixed weights; the strategy
// alone, without a server. It shows what a strategy costs, how well it balances, and how much it moves against how much must
// move; first at the asked size, then how cost grows at 10, 100 and 1,000 workers with as many partitions for each.
//
//	go run ./test/bench/strategy
//	go run ./test/bench/strategy -partitions 10000 -workers 100 -runs 50 -only sticky
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

var (
	partitionsFlag = flag.Int("partitions", 100_000, "number of partitions")
	workersFlag    = flag.Int("workers", 1000, "number of workers before one joins")
	kindsFlag      = flag.Int("kinds", 10, "number of different first keys")
	runsFlag       = flag.Int("runs", 21, "runs of each measurement")
	onlyFlag       = flag.String("only", "", "measure only strategies whose name contains this, in lower case")
)

type contender struct {
	name string
	s    types.AssignmentStrategy
}

func main() {
	flag.Parse()
	if *partitionsFlag < 1 || *workersFlag < 1 || *kindsFlag < 1 || *runsFlag < 1 {
		log.Fatal("-partitions, -workers, -kinds and -runs must be at least 1")
	}
	fmt.Printf("%s %s/%s, GOMAXPROCS %d; %d kinds, %d runs; one worker joins\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), *kindsFlag, *runsFlag)
	all := []contender{
		{"Sticky", strategy.Sticky()},
		{"ConsistentHash", strategy.ConsistentHash()},
		{"WeightedConsistentHash", strategy.WeightedConsistentHash()},
		{"RoundRobin", strategy.RoundRobin()},
	}
	for _, weights := range []string{"equal", "mixed"} {
		fmt.Printf("%s: %s weights\n", map[string]string{"equal": "B1", "mixed": "B2"}[weights], weights)
		header()
		for _, c := range all {
			if strings.Contains(strings.ToLower(c.name), *onlyFlag) {
				measure(c, *partitionsFlag, *workersFlag, weights)
			}
		}
		fmt.Printf("\ngrowth: Sticky, %d partitions per worker\n", *partitionsFlag / *workersFlag)
		header()
		for _, m := range []int{10, 100, 1000} {
			measure(all[0], m*(*partitionsFlag / *workersFlag), m, weights)
		}
		fmt.Printf("\ngrowth: Sticky, %d partitions at any number of workers\n", *partitionsFlag)
		header()
		for _, m := range []int{10, 100, 1000} {
			measure(all[0], *partitionsFlag, m, weights)
		}
		fmt.Println()
	}
}

func header() {
	fmt.Printf("%-24s%10s%9s%28s%8s%10s%10s%8s%8s%16s\n", "strategy", "partitions", "workers", "ms: min / median / max",
		"spread", "max/mean", "min/mean", "moves", "least", "weight moved")
}

func measure(c contender, n, m int, weights string) {
	in := input(n, m, weights)
	first, err := c.s.Assign(context.Background(), in)
	if err != nil {
		log.Fatal(err)
	}
	in.Workers, in.Previous = workers(m+1), first // the new ID sorts last
	var owners []int
	took := make([]time.Duration, *runsFlag)
	for i := range took {
		runtime.GC()
		began := time.Now()
		owners, err = c.s.Assign(context.Background(), in)
		if took[i] = time.Since(began); err != nil {
			log.Fatal(err)
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	j := judge(in, owners)
	needed := "–" // hashing promises another balance, for which fewer moves may do
	if _, sticky := c.s.(strategy.StickyStrategy); sticky {
		needed = fmt.Sprint(least(in, weights))
	}
	fmt.Printf("%-24s%10d%9d%28s%8d%10.4f%10.4f%8d%8s%9.2f × fair\n", c.name, n, m,
		fmt.Sprintf("%.2f / %.2f / %.2f", ms(took[0]), ms(took[len(took)/2]), ms(took[len(took)-1])),
		j.spread, j.most, j.fewest, j.moves, needed, j.moved)
}

type verdict struct {
	spread, moves int
	most, fewest  float64 // load of the busiest and of the idlest worker, over the mean
	moved         float64 // weight that moved, over the mean: what one joiner has to get is 1
}

func judge(in types.AssignmentInput, owners []int) verdict {
	count, load := make([]int, len(in.Workers)), make([]float64, len(in.Workers))
	total, moved := 0.0, 0.0
	for i, w := range owners {
		cost := float64(in.Partitions[i].Cost())
		count[w]++
		load[w] += cost
		total += cost
		if in.Previous[i] != w {
			moved += cost
		}
	}
	mean := total / float64(len(load))
	return verdict{
		spread: slices.Max(count) - slices.Min(count),
		moves:  strategy.Moves(in, owners),
		most:   slices.Max(load) / mean,
		fewest: slices.Min(load) / mean,
		moved:  moved / mean,
	}
}

// least is the number of moves that any assignment needs. With equal weights it is exact. With mixed ones it is a bound:
// the new worker must get 0.95 × mean, and nobody can give more than it has above 0.95 × mean, so count the heaviest
// partitions that may go as if they all sat where they are needed.
func least(in types.AssignmentInput, weights string) int {
	if weights == "equal" {
		return strategy.MinimumMoves(in)
	}
	m := len(in.Workers)
	load := make([]float64, m)
	total := 0.0
	for i, w := range in.Previous {
		load[w] += float64(in.Partitions[i].Cost())
		total += float64(in.Partitions[i].Cost())
	}
	low := 0.95 * total / float64(m)
	var movable []float64
	for i, w := range in.Previous {
		if cost := float64(in.Partitions[i].Cost()); load[w]-cost >= low {
			movable = append(movable, cost)
		}
	}
	slices.Sort(movable)
	got, n := 0.0, 0
	for i := len(movable) - 1; i >= 0 && got < low; i-- {
		got += movable[i]
		n++
	}
	return n
}

func input(n, m int, weights string) types.AssignmentInput {
	in := types.AssignmentInput{Workers: workers(m), Partitions: make([]types.Partition, n)}
	kinds := min(*kindsFlag, n)
	digits := int(math.Log10(float64(n))) + 1
	for i := range in.Partitions {
		p := types.NewPartition(fmt.Sprintf("kind-%06d", i*kinds/n), fmt.Sprintf("%0*d", digits, i))
		if weights == "mixed" { // 1 % weigh 20, 9 % weigh 3
			switch {
			case i%100 == 0:
				p.Weight = 20
			case i%100 < 10:
				p.Weight = 3
			default:
				p.Weight = 1
			}
		}
		in.Partitions[i] = p
	}
	return in
}

func workers(n int) []types.Worker {
	ws := make([]types.Worker, n)
	for i := range ws {
		ws[i].ID = fmt.Sprintf("worker-%06d", i)
	}
	return ws
}
