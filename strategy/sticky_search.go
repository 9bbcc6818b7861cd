package strategy

import "slices"

// ranking finds the worker with the least key, where keys change and the heap has outdated entries: one that does not
// match the present key is dropped when it comes up.
type ranking struct {
	heap minHeap
	key  func(w int32) int64
}

func rank(m int, key func(w int32) int64) *ranking {
	r := &ranking{heap: make(minHeap, m), key: key}
	for w := range r.heap {
		r.heap[w] = entry{key(int32(w)), int32(w)}
	}
	r.heap.init()
	return r
}

func (r *ranking) first() (w int32, ok bool) {
	for len(r.heap) > 0 {
		if e := r.heap[0]; e.key == r.key(e.id) {
			return e.id, true
		}
		r.heap.pop()
	}
	return 0, false
}

func (r *ranking) drop() { r.heap.pop() }

// firstFew returns the first k workers, in order.
func (r *ranking) firstFew(k int) []int32 {
	var few []int32
	for len(few) < k {
		w, ok := r.first()
		if !ok {
			break
		}
		r.drop()
		if !slices.Contains(few, w) {
			few = append(few, w)
		}
	}
	r.changed(few...)
	return few
}

func (r *ranking) changed(ws ...int32) {
	for _, w := range ws {
		r.heap.push(entry{r.key(w), w})
	}
}

// relieve takes from workers above the upper limit, most loaded first, and gives to the least loaded. It reports whether
// anything moved. No step adds to what is above the limit in sum, and each that does not lessen it lessens the squares.
func (a *weighed) relieve() (moved bool, err error) {
	busiest := rank(len(a.load), func(w int32) int64 { return -a.load[w] })
	idlest := rank(len(a.load), func(w int32) int64 { return a.load[w] })
	for {
		if err := a.tick(); err != nil {
			return false, err
		}
		d, ok := busiest.first()
		if !ok || a.load[d] <= a.high {
			return moved, nil
		}
		r, _ := idlest.first()
		if at := a.toRelieve(d, r); at >= 0 {
			a.move(d, at, r)
		} else if r, ok = a.exchange(d, idlest.firstFew(maxPartners)); !ok {
			busiest.drop()
			continue
		}
		moved = true
		busiest.changed(d, r)
		idlest.changed(d, r)
	}
}

// toRelieve chooses what d, which is above the limit, gives to r, so that few moves are needed: the lightest partition that
// suffices alone, if r has room for it and d keeps its share; else the heaviest for which that holds; else the lightest, if it
// makes the pair more even; else none (-1).
func (a *weighed) toRelieve(d, r int32) int {
	items := a.of(d)
	fits := min(a.high-a.load[r], a.load[d]-a.low, a.load[d]-a.load[r]-1)
	heaviest := a.upTo(d, fits)
	if heaviest >= 0 {
		enough := a.upTo(d, a.load[d]-a.high-1) + 1
		if enough > heaviest {
			return heaviest
		}
		return a.upTo(d, a.cost[items[enough]]) // the last of those that cost the same is cheapest to take out
	}
	if len(items) > 0 && a.load[r]+a.cost[items[0]] < a.load[d] {
		return 0
	}
	return -1
}

// maxPartners bounds how many workers are tried for an exchange.
const maxPartners = 16

// exchange is for a worker d above the limit that has only heavy partitions left: it gives the lightest of them to the first of
// the partners that can give back lighter ones so that neither is above the limit afterwards. It returns that partner.
func (a *weighed) exchange(d int32, partners []int32) (r int32, ok bool) {
	if len(a.of(d)) == 0 {
		return 0, false
	}
	c := a.cost[a.of(d)[0]]
	for _, r := range partners {
		least, most := a.load[r]+c-a.high, a.high-(a.load[d]-c) // that r has to give back
		if back, ok := a.pick(r, least, most); ok && r != d {
			a.move(d, 0, r)
			for _, i := range back {
				at, _ := slices.BinarySearchFunc(a.of(r), i, a.order)
				a.move(r, at, d)
			}
			return r, true
		}
	}
	return 0, false
}

// pick chooses partitions of w that cost least to most together, heaviest first.
func (a *weighed) pick(w int32, least, most int64) (picked []int32, ok bool) {
	sum := int64(0)
	for at := a.upTo(w, most); at >= 0 && sum < least; at-- {
		if i := a.of(w)[at]; sum+a.cost[i] <= most {
			picked = append(picked, i)
			sum += a.cost[i]
		}
	}
	return picked, least <= sum && sum <= most
}

// fill gives to workers below the lower limit, least loaded first, from the worker that would be left with most. It ends
// when nobody is below the limit, or when every giver would be the poorer one; and reports whether anything moved.
func (a *weighed) fill() (moved bool, err error) {
	idlest := rank(len(a.load), func(w int32) int64 { return a.load[w] })
	richest := rank(len(a.load), func(w int32) int64 { return -a.withoutLightest(w) })
	for {
		if err := a.tick(); err != nil {
			return false, err
		}
		r, _ := idlest.first()
		d, ok := richest.first()
		if !ok || a.load[r] >= a.low || a.withoutLightest(d) <= a.load[r] {
			return moved, nil
		}
		a.move(d, a.toFill(d, r), r)
		moved = true
		idlest.changed(d, r)
		richest.changed(d, r)
	}
}

// withoutLightest returns w's load without its lightest partition. It is asked of every worker, so it sorts nothing.
func (a *weighed) withoutLightest(w int32) int64 {
	items := a.items[w]
	if len(items) == 0 {
		return 0
	}
	lightest := a.cost[items[0]]
	if !a.sorted[w] {
		for _, i := range items {
			lightest = min(lightest, a.cost[i])
		}
	}
	return a.load[w] - lightest
}

// toFill chooses what d gives to r, which is below the limit: the heaviest partition that leaves both within the limits; or
// that leaves r no richer than d; or the lightest, which leaves d richer than r was.
func (a *weighed) toFill(d, r int32) int {
	if at := a.upTo(d, min(a.load[d]-a.low, a.high-a.load[r])); at >= 0 {
		return at
	}
	return max(0, a.upTo(d, (a.load[d]-a.load[r])/2))
}
