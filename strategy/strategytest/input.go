package strategytest

import (
	"cmp"
	"slices"

	"github.com/partigo/parti/types"
)

// Input builds what the leader would pass to a strategy: workers and partitions sorted by ID, and for each partition the
// index of its owner. owners maps partition IDs to worker IDs; who is not among the workers is nobody. The arguments may be in
// any order and are not changed.
func Input(workers []types.Worker, partitions []types.Partition, owners map[string]string) types.AssignmentInput {
	in := types.AssignmentInput{
		Workers:    slices.SortedFunc(slices.Values(workers), func(a, b types.Worker) int { return cmp.Compare(a.ID, b.ID) }),
		Partitions: slices.SortedFunc(slices.Values(partitions), func(a, b types.Partition) int { return cmp.Compare(a.ID(), b.ID()) }),
		Previous:   make([]int, len(partitions)),
	}
	index := make(map[string]int, len(workers))
	for i, w := range in.Workers {
		index[w.ID] = i
	}
	for i, p := range in.Partitions {
		in.Previous[i] = types.NoOwner
		if w, ok := index[owners[p.ID()]]; ok {
			in.Previous[i] = w
		}
	}
	return in
}

// Owners is the inverse of [Input]: who owns which partition, by ID, according to a result of Assign for in. What is given to
// [types.NoOwner] is left out.
func Owners(in types.AssignmentInput, result []int) map[string]string {
	owners := make(map[string]string, len(result))
	for i, w := range result {
		if w != types.NoOwner {
			owners[in.Partitions[i].ID()] = in.Workers[w].ID
		}
	}
	return owners
}

// clone copies in so that nothing is shared, not even the bytes of a string.
func clone(in types.AssignmentInput) types.AssignmentInput {
	fresh := func(s string) string { return string([]byte(s)) }
	out := types.AssignmentInput{Previous: slices.Clone(in.Previous)}
	for _, w := range in.Workers {
		w.ID, w.Labels = fresh(w.ID), slices.Clone(w.Labels)
		out.Workers = append(out.Workers, w)
	}
	for _, p := range in.Partitions {
		p = p.Clone()
		for i := range p.Keys {
			p.Keys[i] = fresh(p.Keys[i])
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// same reports whether two inputs are equal in everything. It does what reflect.DeepEqual does, in a tenth of the time.
func same(a, b types.AssignmentInput) bool {
	return slices.Equal(a.Previous, b.Previous) &&
		slices.EqualFunc(a.Workers, b.Workers, func(v, w types.Worker) bool {
			return v.ID == w.ID && slices.Equal(v.Labels, w.Labels)
		}) &&
		slices.EqualFunc(a.Partitions, b.Partitions, func(p, q types.Partition) bool {
			return p.Weight == q.Weight && p.Label == q.Label && slices.Equal(p.Keys, q.Keys)
		})
}

// load returns the numbers of partitions and the costs per worker, as far as the result names existing ones.
func load(in types.AssignmentInput, result []int) (count []int, cost []float64) {
	count, cost = make([]int, len(in.Workers)), make([]float64, len(in.Workers))
	for i, w := range result {
		if w >= 0 && w < len(in.Workers) && i < len(in.Partitions) {
			count[w]++
			cost[w] += float64(in.Partitions[i].Cost())
		}
	}
	return count, cost
}
