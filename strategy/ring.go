package strategy

import (
	"cmp"
	"context"
	"math/bits"
	"slices"

	"github.com/partigo/parti/types"
)

// maxProbes bounds how far a partition walks on the ring past workers that have too little room for it. Only costs that
// differ make one walk far; at equal costs full workers are skipped at no cost.
const maxProbes = 1 << 10

// ring is a consistent-hash ring with bounded loads (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded
// Loads", 2016): a partition belongs to the first worker clockwise from its hash that still has room.
type ring struct {
	points []point // by position
	bucket []int32 // [top bits of a hash]: the first point whose hash has these top bits, or more
	shift  int
	next   []int32 // [point]: itself, or a later one up to which all workers are full; a union-find forest
	of     [][]int32
	load   []int64
}

type point struct {
	hash   uint64
	worker int32
}

func newRing(workers []types.Worker, virtual int) *ring {
	m, n := len(workers), len(workers)*virtual
	r := &ring{points: make([]point, 0, n), next: make([]int32, n), of: make([][]int32, m), load: make([]int64, m)}
	for w := range workers {
		for i := range virtual {
			r.points = append(r.points, point{hashWorker(workers[w].ID, i), int32(w)})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.worker, b.worker))
	})
	for w := range r.of {
		r.of[w] = make([]int32, 0, virtual)
	}
	for i, p := range r.points {
		r.next[i] = int32(i)
		r.of[p.worker] = append(r.of[p.worker], int32(i))
	}
	width := bits.Len(uint(n))
	r.shift = 64 - width
	r.bucket = make([]int32, 1<<width)
	at := 0
	for b := range r.bucket {
		for at < n && r.points[at].hash>>r.shift < uint64(b) {
			at++
		}
		r.bucket[b] = int32(at)
	}
	return r
}

// at returns the first point clockwise from a hash.
func (r *ring) at(hash uint64) int {
	i := int(r.bucket[hash>>r.shift])
	for i < len(r.points) && r.points[i].hash < hash {
		i++
	}
	return i % len(r.points)
}

// open returns the first point from i on whose worker is not closed. One must be open.
func (r *ring) open(i int) int {
	root := i
	for int(r.next[root]) != root {
		root = int(r.next[root])
	}
	for int(r.next[i]) != root && i != root {
		i, r.next[i] = int(r.next[i]), int32(root)
	}
	return root
}

// close takes a worker out of the ring.
func (r *ring) close(w int32) {
	for _, i := range r.of[w] {
		r.next[i] = int32((int(i) + 1) % len(r.points))
	}
}

// assign places the partitions in the given order, each on the first worker clockwise that stays within the limit; or, if
// none is found, on the least loaded one.
func (r *ring) assign(ctx context.Context, ps []types.Partition, order []int32, cost []int64, limit int64) ([]int, error) {
	out := make([]int, len(ps))
	lightest := slices.Min(cost)
	var idlest *ranking // made when first needed: at equal costs never
	closed := 0
	for step, i := range order {
		if step%ctxStride == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		w := int32(-1)
		if closed < len(r.load) {
			w = r.walk(hashPartition(&ps[i]), limit-cost[i])
		}
		if w < 0 {
			if idlest == nil {
				idlest = rank(len(r.load), func(w int32) int64 { return r.load[w] })
			}
			w, _ = idlest.first()
		}
		out[i] = int(w)
		wasOpen := r.load[w] <= limit-lightest
		r.load[w] += cost[i]
		if idlest != nil {
			idlest.changed(w)
		}
		if wasOpen && r.load[w] > limit-lightest {
			closed++
			if closed < len(r.load) {
				r.close(w)
			}
		}
	}
	return out, nil
}

// walk returns the first worker clockwise from a hash with at most the given load, or -1.
func (r *ring) walk(hash uint64, most int64) int32 {
	i := r.at(hash)
	for range min(maxProbes, len(r.points)) {
		i = r.open(i)
		if w := r.points[i].worker; r.load[w] <= most {
			return w
		}
		i = (i + 1) % len(r.points)
	}
	return -1
}
