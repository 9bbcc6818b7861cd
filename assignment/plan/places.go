package plan

import (
	"hash/maphash"
	"slices"

	"github.com/partigo/parti/types"
)

// places finds partitions by their keys: a hash table with open addressing and linear probing. At 100,000 partitions a map of
// IDs took most of the time of a plan, for making the IDs and for missing the processor's caches; this needs neither.
type places struct {
	seed maphash.Seed
	// slots is a power of two, at most half full. A slot has the upper half of the hash, and 1 + the place; 0 is free.
	slots []uint64
	keys  func(place int32) []string
}

func newPlaces(n int, keys func(place int32) []string) *places {
	size := 1
	for size < 2*n {
		size *= 2
	}
	p := &places{seed: maphash.MakeSeed(), slots: make([]uint64, size), keys: keys}
	for i := range int32(n) {
		h := p.hash(keys(i))
		at := h & uint64(size-1)
		for p.slots[at] != 0 {
			at = (at + 1) & uint64(size-1)
		}
		p.slots[at] = h>>32<<32 | uint64(i+1)
	}
	return p
}

func (p *places) hash(keys []string) uint64 {
	h := uint64(len(keys))
	for _, k := range keys {
		h = h*0x9e3779b97f4a7c15 ^ maphash.String(p.seed, k)
	}
	return h
}

// of returns the place of the partition, or -1.
func (p *places) of(part *types.Partition) int32 {
	h, mask := p.hash(part.Keys), uint64(len(p.slots)-1)
	for at := h & mask; p.slots[at] != 0; at = (at + 1) & mask {
		if slot := p.slots[at]; slot>>32 == h>>32 {
			if i := int32(uint32(slot)) - 1; slices.Equal(p.keys(i), part.Keys) {
				return i
			}
		}
	}
	return -1
}
