package strategy

import "github.com/partigo/parti/types"

// giving decides what workers with too many partitions give up.
type giving struct {
	*counted
	may     int       // so many may still go down from floor+1 to floor
	givers  []minHeap // [kind]: workers, most of this kind first; may hold outdated entries
	pooled  []int64   // [kind]: how many partitions of it have no owner
	takers  int64     // number of workers that will get something
	takeHas []int64   // [kind]: how many of it the takers have
}

// release takes the owner from n partitions: from every worker what it has above floor+1, and from `may` of those that have
// floor+1 one more. Each step takes one of the kind, and from the worker, where the difference between what the
// giver has of the kind and what the takers will have of it on average is largest.
func (a *counted) release(n, may int, pooled []int64) error {
	g := giving{counted: a, may: may, pooled: pooled, givers: make([]minHeap, a.kinds), takeHas: make([]int64, a.kinds)}
	g.survey()
	best := make(minHeap, 0, a.kinds)
	for k := range a.kinds {
		if d, ok := g.difference(k); ok {
			best = append(best, entry{-d, int32(k)})
		}
	}
	best.init()
	give := make([]int32, len(a.have))
	for step := 0; step < n; {
		if step%ctxStride == 0 && a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		k := int(best[0].id)
		d, ok := g.difference(k)
		switch {
		case !ok:
			best.pop()
		case -d != best[0].key: // differences only shrink, so an outdated one is put back where it belongs
			best.replaceTop(entry{-d, int32(k)})
		default:
			give[g.take(k)]++
			step++
		}
	}
	// Of the kind to give, the last ones go.
	for i := len(a.out) - 1; i >= 0; i-- {
		if w := a.out[i]; w != types.NoOwner {
			if cell := w*a.kinds + int(a.kind[i]); give[cell] > 0 {
				give[cell]--
				a.out[i] = types.NoOwner
			}
		}
	}
	return nil
}

func (g *giving) survey() {
	for w, c := range g.count {
		row := g.have[w*g.kinds : (w+1)*g.kinds]
		switch {
		case c > g.floor:
			for k, has := range row {
				if has > 0 {
					g.givers[k] = append(g.givers[k], entry{-int64(has), int32(w)})
				}
			}
		case c < g.floor || g.extra > 0:
			g.takers++
			for k, has := range row {
				g.takeHas[k] += int64(has)
			}
		}
	}
	for k := range g.givers {
		g.givers[k].init()
	}
}

// difference returns how many more of kind k the best giver has than the takers will have on average, times their number.
// It is false if nobody can give any more of this kind.
func (g *giving) difference(k int) (int64, bool) {
	h := &g.givers[k]
	for len(*h) > 0 {
		w := int((*h)[0].id)
		has := int64(g.have[w*g.kinds+k])
		switch {
		case g.count[w] <= g.floor || g.count[w] == g.floor+1 && g.may == 0 || has == 0:
			h.pop()
		case has != -(*h)[0].key:
			h.replaceTop(entry{-has, int32(w)})
		default:
			return has*g.takers - g.takeHas[k] - g.pooled[k], true
		}
	}
	return 0, false
}

// take makes the best giver of kind k give one, and returns the cell of the table that it came from.
func (g *giving) take(k int) int {
	w := int(g.givers[k][0].id)
	if g.count[w] == g.floor+1 {
		g.may--
	}
	g.count[w]--
	g.pooled[k]++
	cell := w*g.kinds + k
	g.have[cell]--
	return cell
}
