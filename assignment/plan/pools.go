package plan

import (
	"cmp"
	"slices"
)

// Answer says who gets what of a question: an answer of a strategy, or of several, put together by [Problem.Solve].
type Answer struct {
	// Owners has for each of Strategy.Partitions the index of a worker, or types.NoOwner: then it is parked.
	Owners []int
	// Reasons has for each that is parked why, in words for an operator.
	Reasons map[int]string
}

// pool is a set of workers and the partitions that any of them may have, both as indices in the question, ascending.
type pool struct {
	workers []int
	parts   []int
	// others, where not nil, are all workers of the pool that the partitions had without bars.
	others []int
}

// pools sorts the partitions by who may have them. Labels that the same workers carry share a pool. Pools with the fewest workers come first, as
// the others have more to choose from: so they leave each other room. Among equals those with labels come first, by label. That order
// does not depend on how many partitions they happen to have.
func (p *Problem) pools() []*pool {
	carriers := make(map[string][]int)
	for i, w := range p.Strategy.Workers {
		for _, l := range w.Labels {
			carriers[l] = append(carriers[l], i)
		}
	}
	byLabel := make(map[string]*pool)
	last := "" // neighbours often share a label
	for i := range p.Strategy.Partitions {
		if l := p.Strategy.Partitions[i].Label; i == 0 || l != last {
			byLabel[l], last = nil, l
		}
	}
	var bound []string
	for l := range byLabel {
		if l != "" && len(carriers[l]) > 0 {
			bound = append(bound, l)
		}
	}
	slices.Sort(bound)
	var pools []*pool
	of := func(workers []int) *pool {
		for _, q := range pools {
			if slices.Equal(q.workers, workers) {
				return q
			}
		}
		q := &pool{workers: workers}
		pools = append(pools, q)
		return q
	}
	for _, l := range bound {
		byLabel[l] = of(carriers[l])
	}
	free := p.free()
	for l, q := range byLabel { // without a label, or with one that binds nobody
		if q == nil {
			byLabel[l] = of(free)
		}
	}
	slices.SortStableFunc(pools, func(a, b *pool) int { return cmp.Compare(len(a.workers), len(b.workers)) })
	var q *pool
	for i := range p.Strategy.Partitions {
		if l := p.Strategy.Partitions[i].Label; q == nil || l != last {
			q, last = byLabel[l], l
		}
		q.parts = append(q.parts, i)
	}
	return pools
}

// free returns the workers that may have partitions without a label.
func (p *Problem) free() []int {
	var plain, all []int
	for i, w := range p.Strategy.Workers {
		all = append(all, i)
		if len(w.Labels) == 0 {
			plain = append(plain, i)
		}
	}
	if p.in.SharedUnlabeled || len(plain) == 0 {
		return all
	}
	return plain
}
