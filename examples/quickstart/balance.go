package main

// settled reports whether all partitions run, on live workers only, and none has two more than another.
func (g *group) settled(s sight) bool {
	count := counts(s.running)
	for _, w := range g.live {
		if n := count[w.name]; n < partitionCount/len(g.live) || n > (partitionCount-1)/len(g.live)+1 {
			return false
		}
		delete(count, w.name)
	}
	return len(s.running) == partitionCount && len(count) == 0
}

// minimum is plain arithmetic, apart from any strategy: with n partitions on m workers each may have ⌊n/m⌋, and n mod m of them one
// more. Whatever a live worker has up to that can stay; everything else has to move.
func (g *group) minimum(running map[string]string) int {
	count, share, extra := counts(running), partitionCount/len(g.live), partitionCount%len(g.live)
	stay := 0
	for _, w := range g.live {
		n := count[w.name]
		if stay += min(n, share); n > share && extra > 0 {
			stay, extra = stay+1, extra-1
		}
	}
	return partitionCount - stay
}

func counts(running map[string]string) map[string]int {
	count := map[string]int{}
	for _, worker := range running {
		count[worker]++
	}
	return count
}
