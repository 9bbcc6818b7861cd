package strategy

import "github.com/partigo/parti/types"

// Hashes decide ownership, so they must be the same in every process and every release: changing anything here moves nearly
// all partitions of everybody who hashes. A golden test holds them.
//
// FNV-1a, 64 bits (Fowler, Noll, Vo; RFC 9923), written out so that a key is hashed without being copied; then the
// finalizer of SplitMix64 (Steele, Lea, Flood 2014), because FNV alone leaves names that differ in their last digits close
// together on the ring.
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// hashPartition hashes the keys. 0xff, which no valid UTF-8 contains, ends each, so that {"a", "bc"} and {"ab", "c"} differ.
func hashPartition(p *types.Partition) uint64 {
	h := uint64(fnvOffset)
	for _, k := range p.Keys {
		h = (fnv(h, k) ^ 0xff) * fnvPrime
	}
	return mix(h)
}

// hashWorker returns the position of a worker's i-th point on the ring.
func hashWorker(id string, i int) uint64 {
	return mix(fnv(fnvOffset, id) + uint64(i+1)*0x9e3779b97f4a7c15)
}
