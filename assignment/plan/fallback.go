package plan

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/partigo/parti/types"
)

// Fallback is a strategy that moves nothing: every partition stays with its owner, and those without one, or whose owner
// lacks the label, go to the least loaded worker that may have them, the costly ones first. It is deterministic. A partition that
// no worker may have gets types.NoOwner, which [Validate] refuses; [Prepare] asks about none.
func Fallback(in types.AssignmentInput) []int {
	owners := make([]int, len(in.Partitions))
	load := make([]int64, len(in.Workers))
	var homeless []int
	for i := range in.Partitions {
		p, w := &in.Partitions[i], types.NoOwner
		if i < len(in.Previous) {
			w = in.Previous[i]
		}
		if w < 0 || w >= len(in.Workers) || !mayHave(&in.Workers[w], p) {
			owners[i] = types.NoOwner
			homeless = append(homeless, i)
			continue
		}
		owners[i] = w
		load[w] += p.Cost()
	}
	slices.SortStableFunc(homeless, func(a, b int) int {
		return cmp.Compare(in.Partitions[b].Cost(), in.Partitions[a].Cost())
	})
	queues := make(map[string]*queue)
	for _, i := range homeless {
		p := &in.Partitions[i]
		q := queues[p.Label]
		if q == nil {
			var workers []int
			for w := range in.Workers {
				if mayHave(&in.Workers[w], p) {
					workers = append(workers, w)
				}
			}
			q = newQueue(workers, load)
			queues[p.Label] = q
		}
		if w, ok := q.least(load); ok {
			owners[i] = w
			load[w] += p.Cost()
		}
	}
	return owners
}

// queue has workers that may have the same partitions, the least loaded first. Loads only grow, also through other
// queues; what is noted here is never above the truth, and is put right when it comes to the front.
type queue []queued

type queued struct {
	worker int
	load   int64
}

func newQueue(workers []int, load []int64) *queue {
	q := make(queue, 0, len(workers))
	for _, w := range workers {
		q = append(q, queued{w, load[w]})
	}
	heap.Init(&q)
	return &q
}

func (q *queue) least(load []int64) (worker int, ok bool) {
	for q.Len() > 0 {
		first := &(*q)[0]
		if first.load == load[first.worker] {
			return first.worker, true
		}
		first.load = load[first.worker]
		heap.Fix(q, 0)
	}
	return 0, false
}

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return q[i].load < q[j].load || q[i].load == q[j].load && q[i].worker < q[j].worker
}
func (q *queue) Push(x any) { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
