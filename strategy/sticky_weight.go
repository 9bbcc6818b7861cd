package strategy

import (
	"cmp"
	"context"
	"slices"

	"github.com/partigo/parti/types"
)

// weighed is the state of one assignment of partitions of mixed cost.
//
// It is a local search: orphans go to the least loaded worker, heaviest first; then single partitions move until no worker is
// above the upper or below the lower limit, or no move helps. A move from d to r is made only if r + cost < d, which lessens
// the sum of the squared loads (exchange is the exception): so the search ends, and the result, given as Previous, moves nothing.
type weighed struct {
	ctx   context.Context
	steps int
	cost  []int64
	out   []int
	load  []int64
	limits

	items  [][]int32 // [worker]: its partitions, by cost and index once sorted
	sorted []bool
}

func assignByWeight(ctx context.Context, in types.AssignmentInput, prev []int) ([]int, error) {
	m := len(in.Workers)
	cost, total := costs(in.Partitions)
	a := weighed{ctx: ctx, cost: cost, out: prev, load: make([]int64, m), limits: limitsOf(cost, total, m)}
	lightest := make([]int64, m) // 0 for a worker that has nothing
	var orphans []int32
	for i, w := range prev {
		if w == types.NoOwner {
			orphans = append(orphans, int32(i))
			continue
		}
		a.load[w] += cost[i]
		if lightest[w] == 0 || cost[i] < lightest[w] {
			lightest[w] = cost[i]
		}
	}
	if len(orphans) == 0 && a.tolerable(lightest) {
		return prev, nil
	}
	if err := a.placeOrphans(orphans); err != nil {
		return nil, err
	}
	a.list()
	for {
		relieved, err := a.relieve()
		if err != nil {
			return nil, err
		}
		filled, err := a.fill()
		if err != nil {
			return nil, err
		}
		if !relieved && !filled {
			return a.out, nil
		}
	}
}

// tolerable reports whether loads are such as a change of costs by ±5 % can have made of a finished assignment. It holds the
// very conditions that end relieve and fill against the wider limits.
func (a *weighed) tolerable(lightest []int64) bool {
	wide := a.limits.drifted()
	least := slices.Min(a.load)
	var most int64 // that a giver would be left with
	for w, load := range a.load {
		if lightest[w] == 0 {
			continue
		}
		most = max(most, load-lightest[w])
		if load > wide.high && scale(least+lightest[w]+1, driftNum, driftDen) < load {
			return false
		}
	}
	return least >= wide.low || most <= scale(least+1, driftNum, driftDen)
}

// placeOrphans is Graham's LPT rule ("Bounds on Multiprocessing Timing Anomalies", 1969) on top of what workers have.
func (a *weighed) placeOrphans(orphans []int32) error {
	if len(orphans) == 0 {
		return nil
	}
	slices.SortFunc(orphans, func(i, j int32) int {
		return cmp.Or(cmp.Compare(a.cost[j], a.cost[i]), cmp.Compare(i, j))
	})
	h := make(minHeap, len(a.load))
	for w, load := range a.load {
		h[w] = entry{load, int32(w)}
	}
	h.init()
	for _, i := range orphans {
		if err := a.tick(); err != nil {
			return err
		}
		w := h[0].id
		a.out[i] = int(w)
		a.load[w] += a.cost[i]
		h.replaceTop(entry{a.load[w], w})
	}
	return nil
}

// list collects every worker's partitions. The lists share one array, and are sorted only when looked into.
func (a *weighed) list() {
	m := len(a.load)
	a.items, a.sorted = make([][]int32, m), make([]bool, m)
	sizes := make([]int, m)
	for _, w := range a.out {
		sizes[w]++
	}
	all := make([]int32, len(a.out))
	for w, size := range sizes {
		a.items[w], all = all[:0:size], all[size:]
	}
	for i, w := range a.out {
		a.items[w] = append(a.items[w], int32(i))
	}
}

// of returns w's partitions, lightest first.
func (a *weighed) of(w int32) []int32 {
	if !a.sorted[w] {
		slices.SortFunc(a.items[w], a.order)
		a.sorted[w] = true
	}
	return a.items[w]
}

func (a *weighed) order(i, j int32) int {
	return cmp.Or(cmp.Compare(a.cost[i], a.cost[j]), cmp.Compare(i, j))
}

// upTo returns the position in w's list of the heaviest partition that costs at most limit, or -1.
func (a *weighed) upTo(w int32, limit int64) int {
	items := a.of(w)
	at, _ := slices.BinarySearchFunc(items, limit, func(i int32, limit int64) int {
		if a.cost[i] <= limit {
			return -1
		}
		return 1
	})
	return at - 1
}

// move gives the partition at a position of d's list to r. What is shifted for it are heavier ones, which are few.
func (a *weighed) move(d int32, at int, r int32) {
	i := a.of(d)[at]
	a.items[d] = slices.Delete(a.items[d], at, at+1)
	to, _ := slices.BinarySearchFunc(a.of(r), i, a.order)
	a.items[r] = slices.Insert(a.items[r], to, i)
	a.out[i] = int(r)
	a.load[d] -= a.cost[i]
	a.load[r] += a.cost[i]
}

// tick looks at the context now and then.
func (a *weighed) tick() error {
	if a.steps++; a.steps%ctxStride == 0 {
		return a.ctx.Err()
	}
	return nil
}
