package plan

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/partigo/parti/types"
)

// SolveFallback answers without a strategy, for restarts and for when the strategy fails. What has an owner that may have it stays with it: nobody
// hands anything on for balance, and what runs, of whatever pool, has its room before anything else is placed. The rest goes to the least
// loaded that have room, the costly ones first; what lost its owner's label or room goes before what nobody has.
//
// Given its own result as the previous owners, it answers the same.
func (p *Problem) SolveFallback() Answer {
	s := p.solver()
	pools := p.pools()
	s.bars = p.bars(pools)
	for _, q := range pools {
		s.keep(q)
	}
	for again := len(s.bars) > 0; again; { // one that goes may make room for the next; each goes once at most
		again = false
		for _, q := range pools {
			again = s.evade(q) || again
		}
	}
	for _, owned := range []bool{true, false} {
		for _, q := range pools {
			s.spread(q, owned)
		}
	}
	return s.Answer
}

// keep leaves the pool's partitions with their owners, as far as these may have them and have room.
func (s *solver) keep(q *pool) {
	for _, i := range q.parts {
		w := s.previous[i]
		if _, may := slices.BinarySearch(q.workers, w); may && s.admits(w, 1, s.in.Partitions[i].Cost(), noLimit) {
			s.give(i, w)
		}
	}
}

// evade moves partitions away from workers that are barred from them to others that have room, and reports whether there were any.
func (s *solver) evade(q *pool) (changed bool) {
	for _, i := range q.parts {
		w := s.Owners[i]
		if w == types.NoOwner || !slices.Contains(s.bars[i], w) {
			continue
		}
		if best := s.leastLoaded(q.workers, i, s.bars[i]); best != types.NoOwner {
			s.take(i)
			s.give(i, best)
			changed = true
		}
	}
	return changed
}

// spread places what has no owner yet of the pool: what had one before, or else what had none. What finds no room is parked.
func (s *solver) spread(q *pool, owned bool) {
	var parts []int
	for _, i := range q.parts {
		if s.Owners[i] == types.NoOwner && owned == (s.previous[i] != types.NoOwner) {
			parts = append(parts, i)
		}
	}
	if len(parts) == 0 {
		return
	}
	cost := func(i int) int64 { return s.in.Partitions[i].Cost() }
	slices.SortStableFunc(parts, func(a, b int) int { return cmp.Compare(cost(b), cost(a)) })
	least := cost(parts[len(parts)-1])
	free := newQueue(q.workers, s.load)
	var full []queued // have room for cheaper ones only
	for n, i := range parts {
		if n > 0 && cost(i) < cost(parts[n-1]) {
			for _, w := range full {
				heap.Push(free, w)
			}
			full = full[:0]
		}
		if s.bars[i] != nil {
			best := s.leastLoaded(q.workers, i, s.bars[i])
			if best == types.NoOwner { // a barred worker is better than none
				best = s.leastLoaded(q.workers, i, nil)
			}
			s.place(i, best)
			continue
		}
		w, ok := free.least(s.load)
		for ; ok && !s.admits(w, 1, cost(i), noLimit); w, ok = free.least(s.load) {
			if first := heap.Pop(free).(queued); s.admits(w, 1, least, noLimit) {
				full = append(full, first)
			}
		}
		if !ok {
			w = types.NoOwner
		}
		s.place(i, w)
	}
}

// leastLoaded returns the least loaded of the workers that has room for the partition and is not barred from it, or NoOwner.
func (s *solver) leastLoaded(workers []int, i int, barred []int) int {
	best := types.NoOwner
	for _, w := range workers {
		better := best == types.NoOwner || s.load[w] < s.load[best]
		if better && !slices.Contains(barred, w) && s.admits(w, 1, s.in.Partitions[i].Cost(), noLimit) {
			best = w
		}
	}
	return best
}
