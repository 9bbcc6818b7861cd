package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// One answer to the new leader gets lost while it looks for the highest version: it does not wait for that answer for 30 s.
func TestNewLeaderOutlivesALostAnswer(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		old, next := g.Leader(), g.Follower()
		old.Kill()
		next.Client.Gate().Delay(20 * time.Millisecond)
		g.WaitFor(10*time.Second, "the follower leads", next.Manager.IsLeader)
		next.Client.Gate().Lose(natstest.FromServer)
		g.Sleep(200 * time.Millisecond)
		next.Client.Gate().Heal()
		next.Client.Gate().Delay(0)
		t.Logf("all running %v after the answers were lost", g.WaitAllRunning(15*time.Second))
	}, fast, grouptest.Partitions(10))
}

// JetStream is away for a moment, less than a lease: everybody is ready again afterwards.
func TestTransientOutageDoesNotLatch(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		require.NoError(t, g.Env.Server.WithoutJetStream(1500*time.Millisecond))
		g.Sleep(time.Minute)
		g.WaitAllRunning(time.Second)
		for _, w := range g.Live() {
			s := w.Manager.Status()
			require.True(t, s.Ready(), "a minute later: %+v", s)
		}
	}, fast, grouptest.Partitions(12), grouptest.FileStorage())
}
