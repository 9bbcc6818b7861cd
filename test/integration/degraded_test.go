package integration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// diary notes the changes and alerts of a worker.
type diary struct {
	mu      sync.Mutex
	changes []parti.StateChange
	alerts  []parti.Alert
}

func (d *diary) hooks() parti.Option {
	return parti.WithHooks(parti.Hooks{
		OnStateChanged: func(c parti.StateChange) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.changes = append(d.changes, c)
		},
		OnAlert: func(a parti.Alert) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.alerts = append(d.alerts, a)
		},
	})
}

// entered counts how often the worker became degraded.
func (d *diary) entered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, c := range d.changes {
		if c.To == types.StateDegraded {
			n++
		}
	}
	return n
}

func (d *diary) levels() (levels []parti.AlertLevel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.alerts {
		levels = append(levels, a.Level)
	}
	return levels
}

func degraded(w *grouptest.Worker) bool { return w.Manager.State() == types.StateDegraded }

// The connection is down: said after an interval, with its reason and, when it lasts, with alerts; over when a heartbeat is stored, and
// then everything is as before.
func TestConnectionDownIsDegraded(t *testing.T) {
	var d diary
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		w := g.Start(1, d.hooks(), parti.WithDegradedAlerts(5*time.Second, 20*time.Second, time.Minute))[0]
		g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		w.Client.Gate().Drop()
		g.Sleep(5 * time.Second)
		require.Zero(t, d.entered(), "a blip is none")

		w.Cut()
		took := g.WaitFor(2*beat+beat/2, "degraded", func() bool { return degraded(w) })
		require.GreaterOrEqual(t, took, beat)
		require.Contains(t, w.Manager.Status().Degraded, "no connection to NATS")
		g.Sleep(30 * time.Second)
		require.Equal(t, []parti.AlertLevel{parti.AlertWarn, parti.AlertError}, d.levels())
		require.Equal(t, 1, d.entered(), "no flapping")
		w.Heal()
		g.WaitFor(2*ttl, "not degraded any more", func() bool { return !degraded(w) })
		g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		g.Sleep(2 * time.Minute)
		require.Equal(t, []parti.AlertLevel{parti.AlertWarn, parti.AlertError, parti.AlertOver}, d.levels())
		require.True(t, w.Manager.Status().Ready())
	}, fast, grouptest.Partitions(30))
}

// Row 42: a bucket, or both, is deleted, or deleted and made anew at once, under a live group. It is noticed, what runs goes on while
// the lease covers it, and the group comes back to a commit of the new bucket that everybody follows.
func TestBucketGone(t *testing.T) {
	natstest.Long(t)
	both := []string{"control", "heartbeat"}
	for _, c := range []struct {
		name   string
		which  []string
		remake bool
		limit  time.Duration
	}{
		{"control", both[:1], false, 2*leadTerm + time.Second},
		{"control, remade", both[:1], true, 2*leadTerm + time.Second},
		{"heartbeat", both[1:], false, 4*ttl + leadTerm},
		{"heartbeat, remade", both[1:], true, 4*ttl + leadTerm},
		{"both", both, false, 4*ttl + leadTerm},
		{"both, remade", both, true, 4*ttl + leadTerm},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(3)
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5 * time.Second)
				before := g.Leader().Manager.Status().AppliedVersion
				js := g.Env.Connect("operator").JS()
				g.Checker.AllowStoreLoss()
				for _, which := range c.which {
					loseBucket(t, js, "KV_"+grouptest.Namespace+"-"+which, c.remake)
				}
				began := time.Now()
				g.WaitFor(c.limit, "the loss is noticed, and all is well again", func() bool {
					if g.Oracle.Idle() > 0 || g.Spread() > 1 {
						return false
					}
					for _, w := range g.Live() {
						if s := w.Manager.Status(); s.AppliedVersion <= before || !s.Ready() {
							return false
						}
					}
					return true
				})
				t.Logf("converged %v after the loss", time.Since(began))
				leader := g.Leader()
				leader.Kill()
				g.WaitRunningOn(ttl+leadTerm+time.Second, g.Live()...) // the next leader is found in the new bucket
			}, fast, grouptest.Partitions(30))
		})
	}
}

// loseBucket deletes a stream, and makes it anew at once if it is to.
func loseBucket(t *testing.T, js jetstream.JetStream, name string, remake bool) {
	t.Helper()
	ctx := context.Background()
	s, err := js.Stream(ctx, name)
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(ctx, name))
	if remake {
		_, err = js.CreateStream(ctx, s.CachedInfo().Config)
		require.NoError(t, err)
	}
}

// A leader that cannot list the workers says so, acts on nothing that it cannot see, and gives the lead away when that lasts. It is over with
// a complete listing.
func TestEnumerationStall(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		diaries := map[*grouptest.Worker]*diary{}
		for range 3 {
			d := &diary{}
			diaries[g.Start(1, d.hooks())[0]] = d
		}
		g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		starts := g.Oracle.Starts()
		leader := g.Leader()
		restore := noConsumers(t, g.Env.Connect("operator").JS(), "KV_"+grouptest.Namespace+"-heartbeat")
		g.WaitFor(ttl+beat, "the leader is degraded", func() bool { return degraded(leader) })
		require.Contains(t, leader.Manager.Status().Degraded, "cannot list the workers")
		g.WaitFor(3*ttl, "it gives the lead away", func() bool { return !leader.Manager.IsLeader() })
		require.Equal(t, starts, g.Oracle.Starts(), "nothing moves")
		restore()
		g.WaitFor(3*ttl, "nobody is degraded", func() bool { return !slices.ContainsFunc(g.Live(), degraded) })
		g.Sleep(time.Minute)
		require.False(t, slices.ContainsFunc(g.Live(), degraded))
		require.LessOrEqual(t, diaries[leader].entered(), 2)
		g.Follower().Kill()
		g.WaitRunningOn(ttl+announced, g.Live()...)
	}, fast, grouptest.Partitions(30))
}

// noConsumers makes the server refuse every new consumer of the stream: listings fail, and writes and reads do not.
func noConsumers(t *testing.T, js jetstream.JetStream, stream string) (restore func()) {
	t.Helper()
	ctx := context.Background()
	s, err := js.Stream(ctx, stream)
	require.NoError(t, err)
	cfg := s.CachedInfo().Config
	tight := cfg
	tight.MaxConsumers = 1
	_, err = js.UpdateStream(ctx, tight)
	require.NoError(t, err)
	_, err = s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "in-the-way"})
	require.NoError(t, err)
	return func() {
		require.NoError(t, s.DeleteConsumer(ctx, "in-the-way"))
		_, err = js.UpdateStream(ctx, cfg)
		require.NoError(t, err)
	}
}

// A start that waits for NATS longer than StartTimeout says so, raises an alert, and takes part as soon as NATS is there.
func TestStartThatWaitsIsDegraded(t *testing.T) {
	var d diary
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(1)
		g.WaitAllRunning(10 * time.Second)
		w := g.Make(d.hooks(), parti.WithWaitForServer(), parti.WithStartTimeout(5*time.Second), parti.WithDegradedAlerts(time.Second, time.Minute, time.Hour))
		w.Cut()
		started := make(chan error, 1)
		go func() { started <- w.Start() }()
		g.Sleep(4 * time.Second)
		require.Equal(t, types.StateJoining, w.Manager.State())
		g.WaitFor(10*time.Second, "degraded", func() bool { return degraded(w) })
		require.Contains(t, w.Manager.Status().Degraded, "the start waits for NATS")
		g.Sleep(2 * time.Second)
		require.Equal(t, []parti.AlertLevel{parti.AlertWarn}, d.levels())
		w.Heal()
		require.NoError(t, <-started)
		g.WaitFor(10*time.Second, "it takes part", func() bool { return w.Manager.Status().Ready() && runsOf(g, w.ID()) > 0 })
	}, fast, grouptest.Partitions(30))
}

// Row 40: writes to replicated buckets time out while reads work, since two of three servers are gone. Workers fence, say so once, and
// come back by themselves.
func TestWritesTimeOutWhileReadsWork(t *testing.T) {
	natstest.Long(t)
	c := natstest.NewCluster(t, 3)
	var d diary
	grouptest.OnCluster(t, c, 1, func(g *grouptest.Group) {
		g.Start(2, d.hooks())
		g.WaitAllRunning(2 * time.Minute)
		g.WaitFor(2*time.Minute, "what is to be stored is heard by all", func() bool {
			last, _ := g.Checker.LastCommit()
			return !slices.ContainsFunc(g.Live(), func(w *grouptest.Worker) bool {
				s := w.Manager.Status()
				return s.AppliedVersion != last.Version || !s.Ready()
			})
		})
		c.Isolate(1)
		c.Isolate(2)
		before := d.entered() // on a busy machine some writes may have timed out already
		w := g.Live()[0]
		g.WaitFor(30*time.Second, "everybody's handlers have ended, and it is said why", func() bool {
			return len(g.Oracle.Running()) == 0 && degraded(w) && degraded(g.Live()[1])
		})
		require.True(t, w.Client.Conn().IsConnected())
		require.NotEmpty(t, w.Manager.Status().Degraded)
		g.WaitFor(30*time.Second, "a while passes", func() bool { return time.Since(w.Manager.Status().DegradedSince) > 5*time.Second })
		require.LessOrEqual(t, d.entered(), before+2, "once for each of the two")
		c.Heal(1)
		c.Heal(2)
		// Without a majority no key expires. Whoever saw the lead unrenewed for longer than the lease takes it over now, guarded by its
		// revision. The checker sees that the key's time was over.
		g.WaitAllRunning(4 * time.Minute)
	}, fast, grouptest.Manager(parti.WithStartTimeout(2*time.Minute)), grouptest.Partitions(10))
}
