package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/partigo/parti/types"
)

// maxRounds bounds how often a strategy is asked about one pool. Each round doubles, roughly, the share of the workers that are
// settled; what is left after so many is placed on the least loaded.
const maxRounds = 32

// maxPasses bounds how often a pool with bounds is settled anew from its own result. More than three are rare.
const maxPasses = 64

// Solve answers p.Strategy by asking assign about each pool. It heeds labels, capacity and balance over all pools, whatever assign
// does about them; an error of assign, or an answer that names a worker that does not exist (types.ErrInvalidAssignment), ends it.
//
// # Capacity
//
// A worker that is given more than it takes is full: it keeps what it had, is given of the rest what fits, and is left out, with
// all that, when assign is asked again about what remains. What fits nowhere is parked: those without an owner first.
//
// # Workers in several pools
//
// Where partitions cost the same, what each worker is to have of each pool is computed first, as level as labels and capacity allow; see
// leveller. Else pools are solved one after the other, those with the fewest workers first, and what a worker has from earlier ones counts: in
// a pool it gets so much that the loads come close to each other. Either is a bound like its capacity, but only balance depends on it.
// Then room goes by the order of pools, before it goes by who had an owner.
//
// # Bars
//
// A partition that is barred from workers has a pool without these, or else is taken from them after each answer.
//
// Given its own result as the previous owners, Solve answers the same, if assign does so for each pool.
func (p *Problem) Solve(assign func(types.AssignmentInput) ([]int, error)) (Answer, error) {
	if len(p.Strategy.Partitions) == 0 {
		return Answer{}, nil
	}
	s := p.solver()
	s.assign = assign
	pools := p.pools()
	s.bars = p.bars(pools)
	parts := split(pools, s.bars)
	if s.level = level(p.Strategy, parts); s.level != nil {
		pools, s.bars = parts, nil // which are pools now
	}
	for k, q := range pools {
		if err := s.pool(k, q); err != nil {
			return Answer{}, err
		}
	}
	copy(s.previous, p.Strategy.Previous)
	s.relent(pools)
	return s.Answer, nil
}

type solver struct {
	Answer
	in types.AssignmentInput
	// previous has the owners before, also while the question is asked again.
	previous []int
	assign   func(types.AssignmentInput) ([]int, error)
	// load and count are what each worker has so far, of all pools.
	load  []int64
	count []int
	// bars are the workers that are not to have a partition, by partition.
	bars map[int][]int
	// level has, by pool and worker, how many partitions it is to have; nil: that is settled pool by pool.
	level [][]int

	// Of the pool in hand: what each worker may have at the end, and up to what it is given others' partitions, by worker.
	quotas map[int]quota
}

// solver returns a solver that has given nothing to anybody.
func (p *Problem) solver() *solver {
	m := len(p.Strategy.Workers)
	s := &solver{in: p.Strategy, previous: slices.Clone(p.Strategy.Previous), load: make([]int64, m), count: make([]int, m)}
	s.Owners = slices.Repeat([]int{types.NoOwner}, len(p.Strategy.Partitions))
	return s
}

const noLimit = math.MaxInt64

// quota is a bound on a worker's load over all pools. With partitions of equal cost, fair is rounded down and most up.
type quota struct{ fair, most int64 }

// pool settles one pool. Where bounds had to be enforced, it is settled again from there, until that changes nothing: so the same
// question, asked with this answer, gets this answer. Where answers go round in a circle, the first of them in order is taken.
func (s *solver) pool(k int, q *pool) error {
	s.share(k, q)
	load, count := slices.Clone(s.load), slices.Clone(s.count)
	reset := func() {
		copy(s.load, load)
		copy(s.count, count)
		for _, i := range q.parts {
			s.Owners[i] = types.NoOwner
			delete(s.Reasons, i)
		}
	}
	var answers [][]int
	for {
		bounded, err := s.settle(q)
		bounded = s.bar(q) || bounded
		if err != nil || !bounded || len(answers) == maxPasses {
			return err
		}
		answer := make([]int, len(q.parts))
		for j, i := range q.parts {
			answer[j] = s.Owners[i]
			s.previous[i] = s.Owners[i]
		}
		before := slices.IndexFunc(answers, func(a []int) bool { return slices.Equal(a, answer) })
		if before >= 0 {
			first := slices.MinFunc(answers[before:], slices.Compare)
			reset()
			for j, i := range q.parts {
				s.place(i, first[j])
			}
			return nil
		}
		answers = append(answers, answer)
		reset()
	}
}

// place gives the partition to the worker, or parks it for want of room.
func (s *solver) place(i, w int) {
	if w != types.NoOwner {
		s.give(i, w)
		return
	}
	if s.Reasons == nil {
		s.Reasons = make(map[int]string)
	}
	s.Reasons[i] = noRoom(s.in.Partitions[i].Label)
}

// settle places a pool's partitions once, and reports whether bounds had to be enforced.
func (s *solver) settle(q *pool) (bounded bool, err error) {
	left, active := q.parts, q.workers
	for round := 0; round < maxRounds && len(left) > 0 && len(active) > 0; round++ {
		given, err := s.ask(left, active)
		if err != nil {
			return bounded, err
		}
		full := s.full(left, given, active)
		if len(full) == 0 {
			for j, i := range left {
				s.give(i, given[j])
			}
			return bounded, nil
		}
		bounded = true
		left = s.fill(left, given, full)
		active = slices.DeleteFunc(slices.Clone(active), func(w int) bool { return full[w] })
	}
	s.squeeze(q, left)
	return bounded, nil
}

// share computes the quotas; there are none where all workers of the pool have the same so far.
func (s *solver) share(k int, q *pool) {
	s.quotas = nil
	if s.level != nil {
		s.quotas = make(map[int]quota, len(q.workers))
		for _, w := range q.workers {
			n := s.load[w] + int64(s.level[k][w])*s.in.Partitions[0].Cost()
			s.quotas[w] = quota{n, n}
		}
		return
	}
	pre := make([]int, 0, len(q.workers))
	even := true
	for _, w := range q.workers {
		pre = append(pre, w)
		even = even && s.load[w] == s.load[q.workers[0]]
	}
	if even {
		return
	}
	var total, heaviest int64
	unit := s.in.Partitions[q.parts[0]].Cost()
	for _, i := range q.parts {
		c := s.in.Partitions[i].Cost()
		total += c
		heaviest = max(heaviest, c)
		if c != unit {
			unit = 0
		}
	}
	slices.SortStableFunc(pre, func(a, b int) int { return cmp.Compare(s.load[a], s.load[b]) })
	level := float64(total)
	sum := float64(total)
	for k, w := range pre { // pour it over the least loaded
		sum += float64(s.load[w])
		level = sum / float64(k+1)
		if k+1 < len(pre) && level <= float64(s.load[pre[k+1]]) {
			break
		}
	}
	s.quotas = make(map[int]quota, len(pre))
	for _, w := range pre {
		share := max(0, level-float64(s.load[w]))
		fair, most := int64(share), int64(share*1.05)+heaviest
		if unit > 0 {
			units := share / float64(unit)
			fair, most = int64(math.Floor(units+1e-9))*unit, int64(math.Ceil(units-1e-9))*unit
		}
		s.quotas[w] = quota{s.load[w] + fair, s.load[w] + most}
	}
}

// ask asks the strategy about some partitions and workers. The answer's workers are indices of the whole question.
func (s *solver) ask(parts, workers []int) ([]int, error) {
	in := types.AssignmentInput{Workers: s.in.Workers, Partitions: s.in.Partitions, Previous: s.previous}
	if len(parts) != len(s.in.Partitions) || len(workers) != len(s.in.Workers) {
		in = types.AssignmentInput{
			Workers: make([]types.Worker, len(workers)), Partitions: make([]types.Partition, len(parts)), Previous: make([]int, len(parts)),
		}
		place := make(map[int]int, len(workers))
		for j, w := range workers {
			in.Workers[j], place[w] = s.in.Workers[w], j
		}
		for j, i := range parts {
			in.Partitions[j], in.Previous[j] = s.in.Partitions[i], types.NoOwner
			if before, ok := place[s.previous[i]]; ok {
				in.Previous[j] = before
			}
		}
	}
	answer, err := s.assign(in)
	if err != nil {
		return nil, err
	}
	if err := validate(in, answer, func(*types.Worker, *types.Partition) bool { return true }); err != nil {
		return nil, err
	}
	given := make([]int, len(parts))
	for j, w := range answer {
		given[j] = workers[w]
	}
	return given, nil
}

// full returns the workers to which the answer gives more than they may have.
func (s *solver) full(parts, given, active []int) map[int]bool {
	if s.quotas == nil && !slices.ContainsFunc(active, func(w int) bool { return s.in.Workers[w].Capacity.Limited() }) {
		return nil
	}
	n, cost := make([]int, len(s.in.Workers)), make([]int64, len(s.in.Workers))
	for j, w := range given {
		n[w]++
		cost[w] += s.in.Partitions[parts[j]].Cost()
	}
	full := make(map[int]bool)
	for _, w := range active {
		if n[w] > 0 && !s.admits(w, n[w], cost[w], s.most(w)) {
			full[w] = true
		}
	}
	return full
}

func (s *solver) most(w int) int64 {
	if q, ok := s.quotas[w]; ok {
		return q.most
	}
	return noLimit
}

func (s *solver) fair(w int) int64 {
	if q, ok := s.quotas[w]; ok {
		return q.fair
	}
	return noLimit
}

// admits reports whether the worker may have so much more.
func (s *solver) admits(w, n int, cost, limit int64) bool {
	return s.load[w]+cost <= limit && s.in.Workers[w].Capacity.Admits(s.count[w]+n, s.load[w]+cost)
}

func (s *solver) give(i, w int) {
	s.Owners[i] = w
	s.count[w]++
	s.load[w] += s.in.Partitions[i].Cost()
}

// take takes the partition from its owner.
func (s *solver) take(i int) {
	w := s.Owners[i]
	s.Owners[i] = types.NoOwner
	s.count[w]--
	s.load[w] -= s.in.Partitions[i].Cost()
}

// fill gives the full workers what they had and, as far as there is room, what has no owner and what is others', and returns
// what is left of the partitions. Bounds of level.go say who hands something on, and leave room for that: it comes before what has no owner.
func (s *solver) fill(parts, given []int, full map[int]bool) []int {
	for _, i := range parts { // what they had, whoever the strategy would give it to
		if w := s.previous[i]; full[w] && s.admits(w, 1, s.in.Partitions[i].Cost(), s.most(w)) {
			s.give(i, w)
		}
	}
	orphansFirst := s.level == nil
	for _, orphans := range []bool{orphansFirst, !orphansFirst} {
		for j, i := range parts {
			w := given[j]
			if !full[w] || s.Owners[i] != types.NoOwner || orphans != (s.previous[i] == types.NoOwner) {
				continue
			}
			limit := s.most(w)
			if !orphans && s.previous[i] != w {
				limit = s.fair(w)
			}
			if s.admits(w, 1, s.in.Partitions[i].Cost(), limit) {
				s.give(i, w)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(i int) bool { return s.Owners[i] != types.NoOwner })
}

// squeeze places what is left: where it was, or else on the least loaded that has room; what fits nowhere is parked.
func (s *solver) squeeze(q *pool, parts []int) {
	for _, i := range parts {
		before := s.previous[i]
		if slices.Contains(q.workers, before) && s.admits(before, 1, s.in.Partitions[i].Cost(), s.most(before)) {
			s.give(i, before)
		}
	}
	least := int64(math.MaxInt64) // the least cost that has found no room; there is never more room than before
	for _, i := range parts {
		cost := s.in.Partitions[i].Cost()
		if s.Owners[i] != types.NoOwner {
			continue
		}
		best := types.NoOwner
		for _, w := range q.workers {
			limit := int64(noLimit) // a bound for balance gives way to a worker that has room
			if s.level != nil {
				limit = s.most(w) // but this one leaves room for what else needs it
			}
			if cost < least && (best == types.NoOwner || s.load[w] < s.load[best]) && s.admits(w, 1, cost, limit) {
				best = w
			}
		}
		if best == types.NoOwner {
			least = min(least, cost)
		}
		s.place(i, best)
	}
}

func noRoom(label string) string {
	if label == "" {
		return reasonRoom
	}
	return fmt.Sprintf("%s for label %s", reasonRoom, label)
}
