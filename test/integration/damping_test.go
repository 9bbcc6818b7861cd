package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// A worker comes and goes for ten minutes. Partitions of others move for it no more than once in 60 s, then 120 s, and so on; only its first
// departure, in good order, is taken for a restart.
func TestFlappingWorker(t *testing.T) {
	natstest.Long(t)
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		owners := g.Checker.Owners()
		began, last := time.Now(), time.Time{}
		given, lives := 0, 0
		look := func() {
			now := g.Checker.Owners()
			moved := false
			for p, w := range now {
				moved = moved || w == "flapping" && owners[p] != w
				if w != "flapping" && owners[p] != w {
					require.Equal(t, "flapping", owners[p], "%s moved between workers that stay", p)
				}
			}
			if moved {
				require.True(t, given < 2 || time.Since(last) > 55*time.Second, "again after %v", time.Since(last))
				last = time.Now()
				given++
			}
			owners = now
		}
		for time.Since(began) < 10*time.Minute {
			w := g.Start(1, parti.WithWorkerID("flapping"))[0]
			for range 6 {
				g.Sleep(2 * time.Second)
				look()
			}
			if lives++; lives%2 == 0 {
				w.Kill()
			} else {
				w.Stop()
			}
			g.Sleep(6 * time.Second)
			look()
		}
		t.Logf("%d lives, given partitions of others %d times", lives, given)
		require.LessOrEqual(t, given, 6)
		require.Positive(t, given)
		g.WaitAllRunning(10 * time.Second)

		w := g.Start(1, parti.WithWorkerID("flapping"))[0] // it is ready while it is damped
		g.WaitFor(10*time.Second, "ready", func() bool { return w.Manager.Status().Ready() })
		require.Equal(t, []string{"flapping"}, g.Leader().Manager.Status().WorkersDamped)
		g.WaitFor(11*time.Minute, "it has its share", func() bool { return g.Spread() <= 1 && g.Oracle.Idle() == 0 })
	}, fast, grouptest.Partitions(24))
}
