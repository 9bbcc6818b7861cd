package plan

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// history makes the `from` lists of new entries. Equal lists share memory: after the loss of a commit each of them names
// every worker of the group, and a list of its own for each partition would not fit into memory.
type history struct {
	version  int64
	released func(types.Holder, int64, string) bool
	// base is in every list: the holders that may run anything, at version.
	base []types.From

	lists   map[string][]types.From
	scratch []types.From
	key     []byte
}

func newHistory(in *Input) *history {
	h := &history{version: in.Version, released: in.Released, lists: make(map[string][]types.From)}
	if h.released == nil {
		h.released = func(types.Holder, int64, string) bool { return false }
	}
	for _, holder := range in.Reissue {
		h.base = append(h.base, types.From{Holder: holder, Version: in.Version})
	}
	h.base = normalize(h.base)
	return h
}

// of returns the `from` of a new entry for the partition that the last commit described by e; nil: by nothing.
func (h *history) of(prev *prevState, e *prevEntry) []types.From {
	if e == nil {
		return h.base
	}
	more := h.scratch[:0]
	for _, f := range e.entry.From {
		if !h.released(f.Holder, f.Version, e.id) {
			more = append(more, f)
		}
	}
	if e.slice >= 0 {
		more = append(more, types.From{Holder: prev.holders[e.slice], Version: h.version})
	}
	if len(prev.doubles) > 0 {
		more = append(more, prev.doubles[e.id]...)
	}
	more = normalize(more)
	if len(h.base) > 0 {
		more = slices.DeleteFunc(more, func(f types.From) bool {
			_, in := slices.BinarySearchFunc(h.base, f.Holder, func(b types.From, x types.Holder) int { return compareHolders(b.Holder, x) })
			return in
		})
	}
	h.scratch = more
	return h.list(more)
}

// list returns base and more as one list, the same memory for the same more.
func (h *history) list(more []types.From) []types.From {
	if len(more) == 0 {
		return h.base
	}
	h.key = h.key[:0]
	for i := range more {
		f := &more[i]
		h.key = binary.AppendUvarint(h.key, uint64(len(f.Worker)))
		h.key = append(h.key, f.Worker...)
		h.key = binary.AppendUvarint(h.key, uint64(len(f.Incarnation)))
		h.key = append(h.key, f.Incarnation...)
		h.key = binary.AppendVarint(h.key, f.Version)
	}
	if known, ok := h.lists[string(h.key)]; ok {
		return known
	}
	list := normalize(slices.Concat(h.base, more))
	h.lists[string(h.key)] = list
	return list
}

// spent reports whether every holder in the list is proved released.
func (h *history) spent(list []types.From, partitionID string) bool {
	for _, f := range list {
		if !h.released(f.Holder, f.Version, partitionID) {
			return false
		}
	}
	return true
}

// normalize sorts the list in place and keeps one item for each incarnation: that with the highest version.
func normalize(list []types.From) []types.From {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b types.From) int {
		return cmp.Or(compareHolders(a.Holder, b.Holder), cmp.Compare(b.Version, a.Version))
	})
	return slices.CompactFunc(list, func(a, b types.From) bool { return a.Holder == b.Holder })
}

func compareHolders(a, b types.Holder) int {
	return cmp.Or(strings.Compare(a.Worker, b.Worker), strings.Compare(a.Incarnation, b.Incarnation))
}
