package chaos

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

var routes = flag.Duration("routes", 5*time.Second, "for how long routes are cut and healed")

// The settings are faster than a cluster deserves: writes to a replicated stream stop for 4 to 8 s when the leader of the stream is cut
// off, which is longer than this lease more often than not. Such a cut fences everybody, which is the more to see here; the defaults (a TTL of 15 s)
// outlast it.
var overCluster = grouptest.Manager(
	parti.WithHeartbeat(time.Second, 6*time.Second), parti.WithLeaderLease(6*time.Second),
	parti.WithWindows(3*time.Second, time.Second, 500*time.Millisecond), parti.WithCooldown(time.Second),
	parti.WithHandoffTimeout(-1), // a forced start is an overlap by intent
	parti.WithStartTimeout(clusterPatience),
)

// clusterPatience is patience for what takes some elections. On a busy machine one may need several attempts of 4 to 9 s, and leases run out
// meanwhile.
const clusterPatience = 4 * time.Minute

// Three servers whose routes are cut and healed at random while workers come, go and die: no partition ever runs twice, and when the
// routes are whole, every one runs.
func TestCutRoutes(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	grouptest.OnCluster(t, c, 3, func(g *grouptest.Group) {
		g.Start(4)
		g.WaitAllRunning(clusterPatience)
		g.Checker.Detach() // it would not hear what is lost on a cut route, and take it for a fault; the oracle sits in the handlers
		end := time.Now().Add(*routes)
		cuts := 0
		for ; cuts == 0 || time.Now().Before(end); cuts++ {
			cutOne(t, g, c)
		}
		took := g.WaitAllRunning(clusterPatience)
		t.Logf("%d cuts; all running %v after the last was healed; %d runs, %d overlaps, longest gap %v",
			cuts, took.Round(time.Millisecond), g.Oracle.Starts(), len(g.Oracle.Overlaps()), g.Oracle.Gaps().Longest.Length().Round(time.Millisecond))
		require.Empty(t, g.Oracle.Overlaps())
	}, overCluster, grouptest.Partitions(30))
}

// cutOne cuts one server off for a while, lets something happen to the workers meanwhile, and heals the routes. After most of
// the cuts it waits until all is well, so that the next one has something to harm.
func cutOne(t *testing.T, g *grouptest.Group, c *natstest.Cluster) {
	t.Helper()
	server := rand.IntN(3)
	c.Isolate(server)
	g.Sleep(rand.N(3 * time.Second))
	if live := g.Live(); len(live) > 3 {
		live[rand.IntN(len(live))].Kill()
	}
	g.Sleep(rand.N(3 * time.Second))
	c.Heal(server)
	if rand.IntN(4) > 0 {
		took := g.WaitAllRunning(clusterPatience)
		t.Logf("server %d was cut off; all running %v after it was healed", server, took.Round(time.Millisecond))
	}
	g.Start(1)
	if live := g.Live(); len(live) > 5 {
		live[rand.IntN(len(live))].Stop()
	}
}
