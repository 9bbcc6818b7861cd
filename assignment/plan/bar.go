package plan

import (
	"slices"

	"github.com/partigo/parti/types"
)

// bars returns, by partition of the question, the workers that are not to have it. A bar that leaves nobody of the pool is none.
func (p *Problem) bars(pools []*pool) map[int][]int {
	if len(p.in.Barred) == 0 {
		return nil
	}
	bars := make(map[int][]int)
	asked := 0
	for i, fate := range p.fate {
		if fate != askStrategy {
			continue
		}
		if ids := p.in.Barred[p.ids[i]]; len(ids) > 0 {
			q := pools[slices.IndexFunc(pools, func(q *pool) bool { _, in := slices.BinarySearch(q.parts, asked); return in })]
			from := slices.DeleteFunc(slices.Clone(q.workers), func(w int) bool { return !slices.Contains(ids, p.Strategy.Workers[w].ID) })
			if n := len(from); n > 0 && n < len(q.workers) {
				bars[asked] = from
			}
		}
		asked++
	}
	return bars
}

// bar takes the pool's partitions from workers that are barred from them, and reports whether there were any: each goes to its previous
// owner where that may have it, or else to the least loaded of the others that has room. Where none has, it stays: a barred worker is
// better than none.
func (s *solver) bar(q *pool) (changed bool) {
	if len(s.bars) == 0 {
		return false
	}
	was := make(map[int]int) // the barred ones, and with whom they were
	var out []int
	for _, i := range q.parts {
		if w := s.Owners[i]; w != types.NoOwner && slices.Contains(s.bars[i], w) {
			was[i], out = w, append(out, i)
			s.take(i)
		}
	}
	for _, i := range out {
		best, cost := types.NoOwner, s.in.Partitions[i].Cost()
		for _, w := range q.workers {
			better := best == types.NoOwner || w == s.previous[i] || best != s.previous[i] && s.load[w] < s.load[best]
			if better && !slices.Contains(s.bars[i], w) && s.admits(w, 1, cost, noLimit) {
				best = w
			}
		}
		if best == types.NoOwner {
			best = was[i]
		}
		s.give(i, best)
		changed = changed || best != was[i]
	}
	if changed { // who has lost one may have room for what had found none
		s.refill(q)
	}
	return changed
}

// refill gives what is parked of the pool to the least loaded that have room, and are not barred from it.
func (s *solver) refill(q *pool) {
	for _, i := range q.parts {
		if s.Owners[i] != types.NoOwner {
			continue
		}
		if best := s.leastLoaded(q.workers, i, s.bars[i]); best != types.NoOwner {
			delete(s.Reasons, i)
			s.give(i, best)
		}
	}
}

// split returns the pools with the partitions under bars in pools of their own.
func split(pools []*pool, bars map[int][]int) []*pool {
	if len(bars) == 0 {
		return pools
	}
	var out, barred []*pool
	for _, q := range pools {
		rest := &pool{workers: q.workers}
		for _, i := range q.parts {
			from := bars[i]
			if from == nil {
				rest.parts = append(rest.parts, i)
				continue
			}
			free := slices.Clone(q.workers)
			free = slices.DeleteFunc(free, func(w int) bool { return slices.Contains(from, w) })
			barred = append(barred, &pool{workers: free, parts: []int{i}, others: q.workers})
		}
		if len(rest.parts) > 0 {
			out = append(out, rest)
		}
	}
	return append(out, barred...)
}

// relent gives to workers that are barred from it what would be parked else.
func (s *solver) relent(pools []*pool) {
	for _, q := range pools {
		if q.others == nil || s.Owners[q.parts[0]] != types.NoOwner {
			continue
		}
		i, best := q.parts[0], types.NoOwner
		for _, w := range q.others {
			better := best == types.NoOwner || w == s.previous[i] || best != s.previous[i] && s.load[w] < s.load[best]
			if better && s.admits(w, 1, s.in.Partitions[i].Cost(), noLimit) {
				best = w
			}
		}
		if best != types.NoOwner {
			delete(s.Reasons, i)
			s.give(i, best)
		}
	}
}
