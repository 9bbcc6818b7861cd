package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// Pods have new names in each deploy, and sometimes one crashes. Who is gone for so long that not even its marker is left holds nothing up: a
// planned move takes no longer after many deploys than after the first, and no `from` remembers the departed.
func TestDepartedWorkersHoldNothingUp(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		for deploy := range 3 {
			old := g.Live()
			g.Oracle.ResetGaps()
			for i := range 2 {
				require.NoError(t, g.Make(parti.WithWorkerID(fmt.Sprintf("pod-%d-%d", deploy, i))).Start())
			}
			g.WaitAllRunning(30 * time.Second)
			g.Sleep(10 * time.Second)
			if deploy > 0 {
				old[0].Stop()
				g.WaitAllRunning(time.Minute)
				longest := g.Oracle.Gaps().Longest
				t.Logf("deploy %d: nobody ran %s for %v at most", deploy, longest.Partition, longest.Length())
				require.Less(t, longest.Length(), 10*moveLimit)
				old[1].Kill()
				g.WaitAllRunning(time.Minute)
			}
			for id, e := range g.Checker.Entries() {
				require.LessOrEqual(t, len(e.From), 2, "%s: %v", id, e.From)
			}
			g.Sleep(11 * time.Minute) // longer than any marker
		}
	}, fast, grouptest.Partitions(12))
}
