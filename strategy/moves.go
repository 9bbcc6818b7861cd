package strategy

import "github.com/partigo/parti/types"

// Moves counts the partitions that have another owner in owners than in in.Previous. A partition that had no owner does not
// count: placing it is no choice.
func Moves(in types.AssignmentInput, owners []int) int {
	moves := 0
	for i, prev := range in.Previous {
		if prev >= 0 && prev < len(in.Workers) && i < len(owners) && owners[i] != prev {
			moves++
		}
	}
	return moves
}

// MinimumMoves returns the least [Moves] of any assignment with a spread ≤ 1, i.e. in which no worker has two partitions
// more than another. It looks at numbers of partitions only, never at weights.
//
// With n partitions on m workers, f = ⌊n/m⌋ and r = n mod m, such an assignment gives f+1 to exactly r workers and f to the
// others. If worker w owns c(w) partitions before, it must give up those above what it may have after, and it need not give
// up any more; letting the workers that own most have the f+1 is best. Hence
//
//	Σ max(0, c(w) − f)  −  min(r, number of workers with c(w) > f)
func MinimumMoves(in types.AssignmentInput) int {
	m := len(in.Workers)
	if m == 0 {
		return 0
	}
	had := make([]int, m)
	for _, w := range in.Previous {
		if w >= 0 && w < m {
			had[w]++
		}
	}
	f, r := len(in.Partitions)/m, len(in.Partitions)%m
	surplus, above := 0, 0
	for _, c := range had {
		if c > f {
			surplus += c - f
			above++
		}
	}
	return surplus - min(r, above)
}
