package plan

import (
	"container/heap"
	"slices"

	"github.com/partigo/parti/types"
)

// leveller computes how many partitions of each pool each worker is to have where workers are in several pools, such that the loads are as
// level as labels, bars and capacity allow. No pool alone can see to that: an earlier pool does not know of later ones. It is for
// partitions of equal cost, where a load is a number.
//
// It starts from what is now, and then, while some worker has two partitions or more than another one to which it can hand one on, directly
// or by a chain of others that each hand on one, it does so on paper. When there is no such chain, no other placement has a smaller sum of
// the squares of the numbers, nor a smaller maximum (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load
// balancing, 2003). So what is level stays.
type leveller struct {
	in    types.AssignmentInput
	pools []*pool
	of    [][]int // the pools of each worker
	has   [][]int // by pool and worker
	was   [][]int // has of the beginning
	count []int   // by worker, all pools together
}

// level returns, by pool and worker, how many partitions it is to have; nil where that is not this package's business, because costs
// differ, or no worker is in several pools.
func level(in types.AssignmentInput, pools []*pool) [][]int {
	ps, several := in.Partitions, false
	l := leveller{in: in, pools: pools, of: make([][]int, len(in.Workers)), count: make([]int, len(in.Workers))}
	for k, q := range pools {
		for _, w := range q.workers {
			l.of[w] = append(l.of[w], k)
			several = several || len(l.of[w]) > 1
		}
	}
	if !several || slices.ContainsFunc(ps, func(p types.Partition) bool { return p.Cost() != ps[0].Cost() }) {
		return nil
	}
	orphans := l.survey()
	for k, n := range orphans {
		l.place(k, n)
	}
	for l.pass() {
	}
	return l.has
}

// survey takes in what workers have that they may keep, and returns by pool how many partitions have no owner.
func (l *leveller) survey() (orphans []int) {
	orphans = make([]int, len(l.pools))
	for k, q := range l.pools {
		l.has = append(l.has, make([]int, len(l.count)))
		for _, i := range q.parts {
			w := l.in.Previous[i]
			if w == types.NoOwner || !slices.Contains(l.of[w], k) || !l.room(w) {
				orphans[k]++
				continue
			}
			l.has[k][w]++
			l.count[w]++
		}
		l.was = append(l.was, slices.Clone(l.has[k]))
	}
	return orphans
}

// room reports whether the worker may have one more.
func (l *leveller) room(w int) bool {
	n := l.count[w] + 1
	return l.in.Workers[w].Capacity.Admits(n, int64(n)*l.in.Partitions[0].Cost())
}

// place gives n partitions without an owner to workers of the pool, the least loaded first. Where none has room, others may hand something
// on to make some; what finds none even so is left out.
func (l *leveller) place(k, n int) {
	load := make([]int64, len(l.count))
	for _, w := range l.pools[k].workers {
		load[w] = int64(l.count[w])
	}
	q := newQueue(l.pools[k].workers, load)
	for n > 0 && q.Len() > 0 {
		w, _ := q.least(load)
		if !l.room(w) {
			heap.Pop(q)
			continue
		}
		l.has[k][w]++
		l.count[w]++
		load[w]++
		n--
	}
	for ; n > 0; n-- {
		if !l.chain(types.NoOwner, k) {
			return
		}
	}
}

// pass looks once at every worker, those with most first, and reports whether anything changed.
func (l *leveller) pass() (changed bool) {
	if slices.Max(l.count)-slices.Min(l.count) < 2 {
		return false
	}
	order := make([]int, len(l.count))
	for w := range order {
		order[w] = w
	}
	slices.SortStableFunc(order, func(a, b int) int { return l.count[b] - l.count[a] })
	least := slices.Min(l.count)
	for _, w := range order {
		for l.count[w]-least > 1 && l.chain(w, types.NoOwner) {
			changed = true
		}
	}
	return changed
}

// hop says how a pool was reached: a worker of the pool before hands on one of this one.
type hop struct{ before, holder int }

// chain finds the shortest way by which the worker can hand on a partition to one that has two or more less, and goes it. Without a
// worker, a partition without an owner of the pool goes to whoever has room. Only pools are searched, and of each only once.
func (l *leveller) chain(from, pool int) bool {
	seen := make([]bool, len(l.pools))
	hops := make([]hop, len(l.pools))
	var queue []int
	add := func(k, before, holder int) {
		if !seen[k] {
			seen[k], hops[k] = true, hop{before, holder}
			queue = append(queue, k)
		}
	}
	if from == types.NoOwner {
		add(pool, types.NoOwner, types.NoOwner)
	} else {
		for _, k := range l.of[from] {
			if l.has[k][from] > 0 {
				add(k, types.NoOwner, from)
			}
		}
	}
	for n := 0; n < len(queue); n++ {
		k := queue[n]
		if to := l.taker(k, from); to != types.NoOwner {
			l.hand(k, to, hops)
			return true
		}
		for _, w := range l.pools[k].workers {
			for _, next := range l.of[w] {
				if l.has[next][w] > 0 {
					add(next, k, w)
				}
			}
		}
	}
	return false
}

// taker returns the worker of the pool that may take one more: the least loaded, and among those one that had more of the pool.
func (l *leveller) taker(k, from int) int {
	best := types.NoOwner
	for _, w := range l.pools[k].workers {
		switch {
		case from != types.NoOwner && l.count[w] > l.count[from]-2, !l.room(w):
		case best == types.NoOwner, l.count[w] < l.count[best],
			l.count[w] == l.count[best] && l.home(k, w) && !l.home(k, best):
			best = w
		}
	}
	return best
}

// home reports whether the worker had more of the pool than it has now.
func (l *leveller) home(k, w int) bool { return l.has[k][w] < l.was[k][w] }

// hand moves one partition along each step of the chain that ends with the worker.
func (l *leveller) hand(k, to int, hops []hop) {
	l.count[to]++
	for {
		h := hops[k]
		l.has[k][to]++
		if h.holder != types.NoOwner {
			l.has[k][h.holder]--
		}
		if h.before == types.NoOwner {
			if h.holder != types.NoOwner {
				l.count[h.holder]--
			}
			return
		}
		k, to = h.before, h.holder
	}
}
