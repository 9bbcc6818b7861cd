package strategy

// entry is a candidate, least key first, then least id: a total order, so that no result depends on the heap's layout.
type entry struct {
	key int64
	id  int32
}

func (a entry) less(b entry) bool { return a.key < b.key || a.key == b.key && a.id < b.id }

// minHeap is a binary heap with the least entry at index 0. container/heap costs an interface call for each comparison,
// which is most of the time here.
type minHeap []entry

// init makes a heap of entries in any order.
func (h minHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *minHeap) push(e entry) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].less(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *minHeap) pop() entry {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
	return top
}

// replaceTop is pop followed by push of e, in one go.
func (h minHeap) replaceTop(e entry) {
	h[0] = e
	h.down(0)
}

func (h minHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].less(h[c]) {
			c++
		}
		if !h[c].less(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
