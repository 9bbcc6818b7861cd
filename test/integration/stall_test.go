package integration

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

const (
	beat       = time.Second         // HeartbeatInterval of fast
	leaseTerm  = ttl - ttl/8         // how long one heartbeat allows a worker to go on
	fenceGrace = ttl / 16            // how long handlers have to return then
	leadTerm   = 3 * time.Second     // LeaderLease of fast
	slowReturn = fenceGrace * 9 / 10 // a handler that only just keeps to that
)

// stall is metrics that block the goroutine which sends heartbeats, from the moment at which it is armed until it is released.
type stall struct {
	types.NopMetrics
	armed   atomic.Bool
	stuck   atomic.Bool
	release chan struct{}
	expired atomic.Int64
}

func newStall() *stall { return &stall{release: make(chan struct{})} }

func (s *stall) HeartbeatSent(time.Duration, error) {
	if s.armed.Load() {
		s.stuck.Store(true)
		<-s.release
	}
}

func (s *stall) LeaseExpired() { s.expired.Add(1) }

func (s *stall) end() {
	s.armed.Store(false)
	close(s.release)
}

// runsOf counts the partitions that a worker's handlers run.
func runsOf(g *grouptest.Group, id string) int {
	n := 0
	for _, r := range g.Oracle.Running() {
		if r.Worker == id {
			n++
		}
	}
	return n
}

// countLost counts the runs that a worker reports as lost.
func countLost(n *atomic.Int64) parti.Option {
	return parti.WithHooks(parti.Hooks{OnLost: func(parti.Ownership) { n.Add(1) }})
}

// Row 14: the goroutine that sends heartbeats stalls, everything else of the process runs. Its partitions' contexts end at the lease's
// deadline all the same, before anybody else starts them; and when it goes on, it takes part again.
func TestStalledHeartbeatGoroutineFencesAtTheDeadline(t *testing.T) {
	for _, c := range []struct {
		name   string
		victim func(g *grouptest.Group) *grouptest.Worker
	}{
		{"follower", (*grouptest.Group).Follower},
		{"leader", (*grouptest.Group).Leader},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				stalls, fenced := map[*grouptest.Worker]*stall{}, new(atomic.Int64)
				for range 3 {
					s := newStall()
					stalls[g.Start(1, parti.WithMetrics(s), countLost(fenced))[0]] = s
				}
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5 * time.Second)
				w := c.victim(g)
				s, id := stalls[w], w.ID()

				s.armed.Store(true)
				g.WaitFor(2*beat, "its next heartbeat stalls", s.stuck.Load)
				took := g.WaitFor(leaseTerm, "its handlers have ended", func() bool { return runsOf(g, id) == 0 })
				t.Logf("handlers ended %v after the heartbeat that stalled; %d partitions idle", took, g.Oracle.Idle())
				require.InDelta(t, leaseTerm-beat+slowReturn, took, float64(20*time.Millisecond), "neither earlier nor later than the lease says")
				require.Equal(t, 10, g.Oracle.Idle(), "and before anybody else has started them")
				require.EqualValues(t, 10, fenced.Load(), "each is reported as lost")
				require.EqualValues(t, 1, s.expired.Load())
				g.WaitRunningOn(ttl+leadTerm, allBut(g, w)...)

				s.end()
				g.WaitFor(2*ttl, "it takes part again", func() bool { return w.Manager.Status().Ready() && runsOf(g, w.ID()) > 0 })
				g.WaitAllRunning(time.Second)
			}, fast, grouptest.Partitions(30), grouptest.Drain(slowHandlers))
		})
	}
}

// slowHandlers keep only just to FenceGrace.
func slowHandlers(string) time.Duration { return slowReturn }

func allBut(g *grouptest.Group, w *grouptest.Worker) []*grouptest.Worker {
	var all []*grouptest.Worker
	for _, o := range g.Live() {
		if o != w {
			all = append(all, o)
		}
	}
	return all
}

// Row 16: the network of a worker is cut. Its handlers have ended before any other worker starts what they ran.
func TestCutWorkerEndsBeforeOthersStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		victim func(g *grouptest.Group) *grouptest.Worker
		fault  func(*natstest.Gate)
	}{
		{"follower, connection lost", (*grouptest.Group).Follower, (*natstest.Gate).Cut},
		{"leader, connection lost", (*grouptest.Group).Leader, (*natstest.Gate).Cut},
		{"follower, black hole", (*grouptest.Group).Follower, func(g *natstest.Gate) { g.Hold(natstest.Both) }},
		{"follower, nothing gets out", (*grouptest.Group).Follower, func(g *natstest.Gate) { g.Hold(natstest.ToServer) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(3)
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5*time.Second + 300*time.Millisecond)
				w := c.victim(g)
				id := w.ID()
				c.fault(w.Client.Gate())
				ended := g.WaitFor(leaseTerm+fenceGrace, "its handlers have ended", func() bool { return runsOf(g, id) == 0 })
				require.Equal(t, 10, g.Oracle.Idle(), "nobody else runs them yet")
				started := ended + g.WaitRunningOn(ttl+leadTerm, allBut(g, w)...)
				t.Logf("ended after %v, running elsewhere after %v", ended, started)
				w.Heal()
				g.WaitFor(2*ttl, "it takes part again", func() bool { return w.Manager.Status().Ready() && runsOf(g, w.ID()) > 0 })
			}, fast, grouptest.Partitions(30), grouptest.Drain(slowHandlers)) // the oracle, at the end: no overlap
		})
	}
}

// Row 11: replies of the store vanish while the connection stays up. The leader demotes itself on its own timer, and workers end their
// handlers on theirs, whether it happens to the leader alone or to everybody.
func TestRepliesVanish(t *testing.T) {
	for _, c := range []struct {
		name string
		all  bool
	}{{"for the leader", false}, {"for everybody", true}} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(3)
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5 * time.Second)
				leader := g.Leader()
				id := leader.ID()
				hit := []*grouptest.Worker{leader}
				if c.all {
					hit = g.Live()
				}
				for _, w := range hit {
					w.Client.Gate().Hold(natstest.FromServer)
				}
				demoted := g.WaitFor(leadTerm, "the leader demotes itself", func() bool { return !leader.Manager.IsLeader() })
				ended := demoted + g.WaitFor(leaseTerm+fenceGrace, "its handlers have ended", func() bool { return runsOf(g, id) == 0 })
				t.Logf("demoted after %v, handlers ended after %v", demoted, ended)
				require.LessOrEqual(t, ended, leaseTerm+fenceGrace)
				if c.all {
					g.WaitFor(leaseTerm+fenceGrace, "everybody's handlers have ended", func() bool { return len(g.Oracle.Running()) == 0 })
					g.Sleep(2 * ttl)
					require.Empty(t, g.Oracle.Running(), "nobody starts anything without an answer")
				} else {
					t.Logf("running elsewhere %v later", g.WaitRunningOn(ttl+leadTerm, allBut(g, leader)...))
				}
				for _, w := range hit {
					w.Heal()
				}
				g.WaitAllRunning(2 * (ttl + leadTerm))
				g.WaitFor(2*(ttl+leadTerm), "everybody takes part again", func() bool { return g.Oracle.Idle() == 0 && g.Spread() <= 1 })
			}, fast, grouptest.Partitions(30), grouptest.Drain(slowHandlers))
		})
	}
}

// What an outage of the store costs in the two modes of ownership. Exclusive stops all work when the leases have run out; Available
// interrupts nothing while it lasts. Afterwards everything runs in both, under new epochs.
func TestOutageOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name string
		mode parti.OwnershipMode
	}{{"exclusive", parti.Exclusive}, {"available", parti.Available}} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				for _, id := range []string{"pod-0", "pod-1", "pod-2"} {
					g.Start(1, parti.WithWorkerID(id), parti.WithOwnership(c.mode))
				}
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5 * time.Second)
				starts := g.Oracle.Starts()
				for _, w := range g.Live() {
					w.Cut()
				}
				if c.mode == parti.Exclusive {
					took := g.WaitFor(leaseTerm+fenceGrace, "all work has stopped", func() bool { return len(g.Oracle.Running()) == 0 })
					t.Logf("all work has stopped after %v", took)
				}
				g.Sleep(5 * ttl)
				if c.mode == parti.Available {
					require.Zero(t, g.Oracle.Idle())
					require.Equal(t, starts, g.Oracle.Starts(), "the same runs as before")
				}
				for _, w := range g.Live() {
					w.Heal()
				}
				took := g.WaitFor(2*(ttl+leadTerm), "everybody is ready, everything runs anew", func() bool {
					for _, w := range g.Live() {
						if !w.Manager.Status().Ready() {
							return false
						}
					}
					return g.Oracle.Idle() == 0 && g.Spread() == 0 && g.Oracle.Starts() >= starts+30
				})
				t.Logf("all running anew %v after the outage", took)
			}, fast, grouptest.Partitions(30), grouptest.Drain(slowHandlers))
		})
	}
}
