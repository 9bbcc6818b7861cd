package integration

import (
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// blinking drops the connections of the workers again and again, each time within a HeartbeatTTL of the time before, until the scenario says stop.
func blinking(g *grouptest.Group, workers ...*grouptest.Worker) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(ttl * 2 / 3):
				for _, w := range workers {
					w.Client.Gate().Drop()
				}
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// The leader's own link drops again and again, so it cannot tell a death from its own trouble. It says so, and lets somebody else lead, who can:
// deaths and changes of the source do not wait for ever.
func TestLeaderWithABlinkingLinkLetsGo(t *testing.T) {
	const patience = 4 * ttl
	for _, c := range []struct {
		name string
		held string
		do   func(*grouptest.Group)
	}{
		{"a death", "one missing worker", func(g *grouptest.Group) { g.Follower().Kill() }},
		{"a change of the source", "a change of the source", func(g *grouptest.Group) { g.SetPartitions(time.Hour, grouptest.Numbered(30)...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(4)
				g.WaitAllRunning(10 * time.Second)
				g.Sleep(10 * time.Second)
				leader := g.Leader()
				stop := blinking(g, leader)
				g.Sleep(ttl)
				c.do(g)
				g.WaitFor(patience, "it says so", func() bool { return degraded(leader) })
				require.Contains(t, leader.Manager.Status().Degraded, "the leader cannot act: troubles with the store")
				require.Contains(t, leader.Manager.Status().Degraded, c.held)
				g.WaitFor(patience, "it lets go", func() bool { return !leader.Manager.IsLeader() })
				require.ErrorContains(t, leader.Manager.Status().LastError, c.held)
				g.WaitAllRunning(2*ttl + leadTerm)
				require.NotEqual(t, leader, g.Leader())
				g.Sleep(time.Minute)
				require.NotEqual(t, leader, g.Leader(), "who leads now has no reason to let go")
				stop()
				g.WaitFor(2*ttl, "all is well", func() bool { return leader.Manager.Status().Ready() })
			}, fast)
		})
	}
}

// Who alone may lead goes on, says what it cannot do, and does it when its link is good again.
func TestOnlyLeaderWithABlinkingLinkStays(t *testing.T) {
	count := &counter{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		leader := g.Start(1, parti.WithMetrics(count))[0]
		g.Start(3, parti.WithRole(parti.RoleFollower))
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		stop := blinking(g, leader)
		g.Sleep(ttl)
		g.Follower().Kill()
		g.Sleep(time.Minute)
		require.EqualValues(t, 1, count.elected.Load())
		require.Contains(t, leader.Manager.Status().Degraded, "one missing worker")
		stop()
		g.WaitAllRunning(2 * ttl)
		g.WaitFor(ttl, "all is well", func() bool { return leader.Manager.Status().Ready() })
	}, fast)
}

// The store stalls for everybody, again and again: the lead goes round, ever more slowly. When that is over, everything is repaired.
func TestLeadGoesRoundSlowlyWhereTheStoreStalls(t *testing.T) {
	const long = 2 * ttl        // the HeartbeatTTL, which the stalls are to leave alone
	const stall = beat + long/6 // at least one heartbeat of everybody's fails
	count := &counter{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(4)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(10 * time.Second)
		before := count.elected.Load()
		g.Follower().Kill()
		stalls := func(d time.Duration) {
			for began := time.Now(); time.Since(began) < d; g.Sleep(stall) {
				for _, w := range g.Live() {
					w.Client.Gate().Hold(natstest.Both)
				}
				g.Sleep(stall)
				for _, w := range g.Live() {
					w.Client.Gate().Heal()
				}
			}
		}
		stalls(5 * time.Minute)
		half := count.elected.Load()
		stalls(5 * time.Minute)
		t.Logf("%d changes of the lead in five minutes, then %d", half-before, count.elected.Load()-half)
		require.GreaterOrEqual(t, half-before, int64(3), "each of them has tried")
		require.LessOrEqual(t, half-before, int64(10))
		require.LessOrEqual(t, count.elected.Load()-half, int64(6))
		g.WaitAllRunning(4 * long)
	}, fast, grouptest.Manager(parti.WithMetrics(count), parti.WithHeartbeat(beat, long), parti.WithLeaderLease(10*time.Second)))
}
