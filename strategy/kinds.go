package strategy

import "github.com/partigo/parti/types"

// maxKindCells bounds kinds × workers, the size of the table of who has how many of which kind.
const maxKindCells = 1 << 18

// kindsOf numbers the kinds of partitions: those with the same first key. Since ps is sorted by ID, and the first key with
// its dot is a prefix of the ID, the members of a kind are neighbours.
//
// Kind 0 collects all that are the only one of theirs. If the table of kinds and m workers would be too large, everything is
// of kind 0: with that many kinds hardly any has members to spread.
func kindsOf(ps []types.Partition, m int) (kind []int32, kinds int) {
	kind = make([]int32, len(ps))
	kinds = 1
	for start := 0; start < len(ps); {
		end := start + 1
		for end < len(ps) && firstKey(ps[end]) == firstKey(ps[start]) {
			end++
		}
		if end-start > 1 {
			if (kinds+1)*m > maxKindCells {
				clear(kind)
				return kind, 1
			}
			for i := start; i < end; i++ {
				kind[i] = int32(kinds)
			}
			kinds++
		}
		start = end
	}
	return kind, kinds
}

func firstKey(p types.Partition) string {
	if len(p.Keys) == 0 {
		return ""
	}
	return p.Keys[0]
}
