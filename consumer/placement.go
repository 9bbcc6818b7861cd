package consumer

import (
	"cmp"
	"slices"

	"github.com/partigo/parti/types"
)

// placement is a placement in the making.
type placement struct {
	in     types.AssignmentInput
	loads  []int64 // of partitions; all else is by worker, or in all
	owners []int
	load   []int64
	count  []int
	cost   []int64 // what counts against the capacity
	total  int64
}

// newPlacement begins with the previous owners.
func newPlacement(in types.AssignmentInput, loads []int64) *placement {
	m := len(in.Workers)
	p := &placement{in: in, loads: loads, owners: slices.Clone(in.Previous), load: make([]int64, m), count: make([]int, m), cost: make([]int64, m)}
	for i, w := range p.owners {
		p.total += loads[i]
		if w != types.NoOwner {
			p.give(i, w)
		}
	}
	return p
}

// place gives away what has no owner, fills up workers that had nothing, and then moves at most allowed partitions from workers whose load
// exceeds the mean by more than the threshold. It returns how many of these it moved.
func (p *placement) place(threshold float64, allowed int) (moved int) {
	var fresh, homeless []int
	for w, n := range p.count {
		if n == 0 {
			fresh = append(fresh, w)
		}
	}
	for i, w := range p.owners {
		if w == types.NoOwner {
			homeless = append(homeless, i)
		}
	}
	slices.SortStableFunc(homeless, func(i, j int) int { return cmp.Compare(p.loads[j], p.loads[i]) })
	for _, i := range homeless {
		p.give(i, p.least(i))
	}
	for _, w := range fresh {
		for float64(p.load[w]) < p.mean()*0.95 && p.relieve(w, float64(p.load[w])) {
		}
	}
	for moved < allowed && p.lessen(p.mean()*(1+threshold)) {
		moved++
	}
	return moved
}

// lessen moves a partition to the least loaded worker that has room for one which brings the two closer, from one whose load exceeds limit.
func (p *placement) lessen(limit float64) bool {
	for _, w := range p.byLoad() {
		if p.relieve(w, limit) {
			return true
		}
		if !p.in.Workers[w].Capacity.Limited() { // what brings this one no closer to another brings nobody closer who has more
			return false
		}
	}
	return false
}

// byLoad returns the workers, the least loaded first.
func (p *placement) byLoad() []int {
	workers := make([]int, len(p.load))
	for w := range workers {
		workers[w] = w
	}
	slices.SortStableFunc(workers, func(v, w int) int { return cmp.Compare(p.load[v], p.load[w]) })
	return workers
}

// relieve moves a partition to a worker, from the most loaded one that has such as bring the two closer: one that has a single large one has not.
// Only workers whose load exceeds limit are relieved.
func (p *placement) relieve(to int, limit float64) bool {
	from := make([]int, 0, len(p.load))
	for w, l := range p.load {
		if w != to && float64(l) > limit {
			from = append(from, w)
		}
	}
	slices.SortStableFunc(from, func(v, w int) int { return cmp.Compare(p.load[w], p.load[v]) })
	return slices.ContainsFunc(from, func(w int) bool { return p.moveOne(w, to) })
}

func (p *placement) mean() float64 { return float64(p.total) / float64(len(p.load)) }

// uneven reports whether a worker's load exceeds the mean by more than the threshold.
func (p *placement) uneven(threshold float64) bool {
	return float64(slices.Max(p.load)) > p.mean()*(1+threshold)
}

func (p *placement) give(i, w int) {
	p.owners[i] = w
	p.load[w] += p.loads[i]
	p.count[w]++
	p.cost[w] += p.in.Partitions[i].Cost()
}

// take takes a partition from its owner.
func (p *placement) take(i int) {
	w := p.owners[i]
	p.owners[i] = types.NoOwner
	p.load[w] -= p.loads[i]
	p.count[w]--
	p.cost[w] -= p.in.Partitions[i].Cost()
}

// least returns the least loaded worker that has room for a partition, the first of equals; the first of all where none has: the leader parks it.
func (p *placement) least(i int) int {
	best := -1
	for w, l := range p.load {
		if p.admits(w, i) && (best < 0 || l < p.load[best]) {
			best = w
		}
	}
	return max(best, 0)
}

// admits reports whether the worker has room for another partition.
func (p *placement) admits(w, i int) bool {
	return p.in.Workers[w].Capacity.Admits(p.count[w]+1, p.cost[w]+p.in.Partitions[i].Cost())
}

// moveOne moves the partition that brings the two workers' loads closest together; none where that is no improvement, or there is no room.
func (p *placement) moveOne(from, to int) bool {
	gap := p.load[from] - p.load[to]
	best, bestGap := -1, gap
	for i, w := range p.owners {
		if w != from {
			continue
		}
		c := p.loads[i]
		if after := max(gap-2*c, 2*c-gap); after < bestGap && p.admits(to, i) {
			best, bestGap = i, after
		}
	}
	if best < 0 {
		return false
	}
	p.take(best)
	p.give(best, to)
	return true
}
