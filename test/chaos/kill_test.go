package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writtenBy returns a condition that holds when every partition was written last by one of these workers, and each of them has some.
func writtenBy(workers ...string) func(map[string]write) bool {
	return func(last map[string]write) bool {
		if len(last) < partitions {
			return false
		}
		seen := map[string]bool{}
		for _, w := range workers {
			seen[w] = false
		}
		for _, l := range last {
			if _, ok := seen[l.worker]; !ok {
				return false
			}
			seen[l.worker] = true
		}
		for _, has := range seen {
			if !has {
				return false
			}
		}
		return true
	}
}

// Rows 20 and 34 with real processes: kill -9 is repaired when the TTL has passed; a process that is started at once with the same given
// ID waits for that too, and takes over as a new incarnation.
func TestKill(t *testing.T) {
	w := newWitness(t)
	for _, id := range []string{"pod-0", "pod-1", "pod-2"} {
		start(t, w, id)
	}
	victim := start(t, w, "pod-3")
	w.waitFor(patience, "all four write", writtenBy("pod-0", "pod-1", "pod-2", "pod-3"))

	victim.kill()
	began, before := time.Now(), w.highestEpoch()
	again := start(t, w, "pod-3")
	t.Logf("the same ID joins again %v after kill -9 (TTL %v)", time.Since(began).Round(time.Millisecond), ttl)
	require.Greater(t, time.Since(began), ttl/2, "it waits for the expiry")
	w.waitFor(patience, "it writes again, under a new epoch", func(last map[string]write) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(last)), func(l write) bool { return l.worker == "pod-3" && l.epoch > before })
	})
	w.waitFor(patience, "all four write again", writtenBy("pod-0", "pod-1", "pod-2", "pod-3"))

	again.kill()
	took := w.waitFor(patience, "the others have taken over", writtenBy("pod-0", "pod-1", "pod-2"))
	t.Logf("its partitions are written by others %v after kill -9", took.Round(time.Millisecond))
}
