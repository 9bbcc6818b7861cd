package plan

import (
	"slices"

	"github.com/partigo/parti/types"
)

// Bar changes an answer so that no partition goes to a worker that is barred from it: it stays with its previous owner where that
// may have it, or else goes to the least loaded worker of its pool that has room. Where there is none the answer stays as it is:
// a barred worker is better than none.
func (p *Problem) Bar(a Answer, barred func(partitionID, worker string) bool) Answer {
	if barred == nil || len(a.Owners) != len(p.Strategy.Partitions) {
		return a
	}
	workers, parts := p.Strategy.Workers, p.Strategy.Partitions
	load, count := make([]int64, len(workers)), make([]int, len(workers))
	var move []int
	for i, w := range a.Owners {
		if w < 0 || w >= len(workers) {
			continue
		}
		load[w] += parts[i].Cost()
		count[w]++
		if barred(parts[i].ID(), workers[w].ID) {
			move = append(move, i)
		}
	}
	if len(move) == 0 {
		return a
	}
	a.Owners = slices.Clone(a.Owners)
	pools := p.pools()
	for _, i := range move {
		at := slices.IndexFunc(pools, func(q *pool) bool { _, in := slices.BinarySearch(q.parts, i); return in })
		best := types.NoOwner
		for _, w := range pools[at].workers {
			switch {
			case barred(parts[i].ID(), workers[w].ID), !workers[w].Capacity.Admits(count[w]+1, load[w]+parts[i].Cost()):
			case w == p.Strategy.Previous[i]:
				best = w
			case best == types.NoOwner || best != p.Strategy.Previous[i] && load[w] < load[best]:
				best = w
			}
		}
		if best == types.NoOwner {
			continue
		}
		from := a.Owners[i]
		load[from], count[from] = load[from]-parts[i].Cost(), count[from]-1
		load[best], count[best] = load[best]+parts[i].Cost(), count[best]+1
		a.Owners[i] = best
	}
	return a
}
