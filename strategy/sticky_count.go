package strategy

import (
	"context"

	"github.com/partigo/parti/types"
)

// counted is the state of one assignment of partitions of equal cost. First the number that each worker gives up is settled
// (that alone makes the number of moves minimal), then which ones, then who gets them.
type counted struct {
	ctx   context.Context
	out   []int
	kind  []int32 // of each partition
	kinds int
	have  []int32 // [worker × kinds + kind]: how many the worker has
	count []int   // [worker]: how many in all
	floor int     // every worker gets at least this many, and at most one more
	extra int     // so many workers can still be raised to floor+1
}

func assignByCount(ctx context.Context, in types.AssignmentInput, prev []int) ([]int, error) {
	n, m := len(in.Partitions), len(in.Workers)
	a := counted{ctx: ctx, out: prev, count: make([]int, m)}
	for _, w := range prev {
		if w != types.NoOwner {
			a.count[w]++
		}
	}
	if n == 0 {
		return prev, nil
	}
	a.floor, a.extra = n/m, n%m
	owned, must, above := 0, 0, 0
	for _, c := range a.count {
		owned += c
		if c > a.floor {
			above++
			must += c - a.floor - 1
		}
	}
	if owned == 0 {
		return deal(n, m), nil
	}
	may := max(0, above-a.extra) // so many of those with floor+1 must go down to floor, no matter which
	a.extra = max(0, a.extra-above)
	if owned == n && must+may == 0 {
		return prev, nil
	}

	a.kind, a.kinds = kindsOf(in.Partitions, m)
	a.have = make([]int32, m*a.kinds)
	pooled := make([]int64, a.kinds)
	for i, w := range prev {
		if k := int(a.kind[i]); w != types.NoOwner {
			a.have[w*a.kinds+k]++
		} else {
			pooled[k]++
		}
	}
	if must+may > 0 {
		if err := a.release(must+may, may, pooled); err != nil {
			return nil, err
		}
	}
	return a.out, a.place()
}

// place gives the partitions without an owner to workers that have room, each to one that has fewest of its kind, and among
// those to one with most room. Kind 0 comes last, since any room is good enough for it.
func (a *counted) place() error {
	pool := make([][]int, a.kinds)
	for i, w := range a.out {
		if w == types.NoOwner {
			pool[a.kind[i]] = append(pool[a.kind[i]], i)
		}
	}
	h := make(minHeap, 0, len(a.count))
	for j := range a.kinds {
		k := (j + 1) % a.kinds
		if len(pool[k]) == 0 {
			continue
		}
		h = h[:0]
		for w := range a.count {
			if a.hasRoom(w) {
				h = append(h, entry{a.placeKey(w, k), int32(w)})
			}
		}
		h.init()
		for step, i := range pool[k] {
			if step%ctxStride == 0 && a.ctx.Err() != nil {
				return a.ctx.Err()
			}
			for !a.hasRoom(int(h[0].id)) { // there is room for all, by construction
				h.pop()
			}
			w := int(h[0].id)
			a.take(w, k, i)
			h.replaceTop(entry{a.placeKey(w, k), int32(w)})
		}
	}
	return nil
}

func (a *counted) hasRoom(w int) bool {
	return a.count[w] < a.floor || a.count[w] == a.floor && a.extra > 0
}

func (a *counted) placeKey(w, k int) int64 {
	return int64(a.have[w*a.kinds+k])<<32 + int64(a.count[w])
}

func (a *counted) take(w, k, i int) {
	if a.count[w] == a.floor {
		a.extra--
	}
	a.out[i] = w
	a.count[w]++
	a.have[w*a.kinds+k]++
}
