package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// Two of two crash, and one is started again under its ID at once. That it waits for its key to expire says nothing about the store: as soon
// as it leads it takes over what the other one had.
func TestWaitingForAnIDIsNoTroubleWithTheStore(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		ws := named(g, 2)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		began := time.Now()
		ws[1].Kill()
		ws[0].Kill()
		require.NoError(t, g.Make(parti.WithWorkerID("pod-0")).Start())
		t.Logf("it has its ID %v after the crash", time.Since(began))
		g.WaitAllRunning(time.Minute)
		t.Logf("everything runs %v after the crash", time.Since(began))
		require.LessOrEqual(t, time.Since(began), ttl+2*announced)
	}, fast, grouptest.Partitions(12))
}
