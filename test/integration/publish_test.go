package integration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// cannotPublish is what a leader says whose commits fail.
const cannotPublish = "the leader cannot publish the assignment"

// tooLarge makes a commit larger than the stream takes, and full leaves no room for the keys that it needs.
func tooLarge(c *jetstream.StreamConfig, _ jetstream.StreamState)   { c.MaxMsgSize = 700 }
func full(c *jetstream.StreamConfig, present jetstream.StreamState) { c.MaxMsgs = int64(present.Msgs) }

// noCommits makes the server refuse every commit. The leader key, which is there already, and the heartbeats are stored.
func noCommits(t *testing.T, js jetstream.JetStream, limit func(*jetstream.StreamConfig, jetstream.StreamState)) (restore func()) {
	t.Helper()
	ctx := context.Background()
	s, err := js.Stream(ctx, "KV_"+grouptest.Namespace+"-control")
	require.NoError(t, err)
	cfg := s.CachedInfo().Config
	small := cfg
	limit(&small, s.CachedInfo().State)
	_, err = js.UpdateStream(ctx, small)
	require.NoError(t, err)
	return func() {
		_, err := js.UpdateStream(ctx, cfg)
		require.NoError(t, err)
	}
}

func saysCannotPublish(w *grouptest.Worker) bool {
	return strings.Contains(w.Manager.Status().Degraded, cannotPublish)
}

// A leader whose commits are refused says so, also where nothing else is wrong: in its state, its status, its alerts and its last error. What
// runs goes on. It is over with the first commit that comes through, and then whoever waited has a share.
func TestLeaderCannotPublish(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  func(*jetstream.StreamConfig, jetstream.StreamState)
		reason string
	}{
		{"too large", tooLarge, parti.ErrPayloadTooLarge.Error()},
		{"full", full, "the bucket is full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				diaries := map[*grouptest.Worker]*diary{}
				for range 3 {
					d := &diary{}
					diaries[g.Start(1, d.hooks(), parti.WithDegradedAlerts(5*time.Second, time.Minute, time.Hour))[0]] = d
				}
				g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
				g.Sleep(5 * time.Second)
				starts, leader := g.Oracle.Starts(), g.Leader()
				restore := noCommits(t, g.Env.Connect("operator").JS(), c.limit)
				newcomer := g.Start(1)[0]
				g.WaitFor(ttl+5*beat, "the leader is degraded", func() bool { return degraded(leader) })
				s := leader.Manager.Status()
				require.True(t, strings.HasPrefix(s.Degraded, cannotPublish), s.Degraded)
				require.ErrorContains(t, s.LastError, c.reason)
				g.Sleep(30 * time.Second)
				require.True(t, leader.Manager.IsLeader())
				require.Equal(t, []parti.AlertLevel{parti.AlertWarn}, diaries[leader].levels())
				require.Equal(t, 1, diaries[leader].entered(), "no flapping")
				require.Equal(t, starts, g.Oracle.Starts(), "nothing moves")
				require.Equal(t, []*grouptest.Worker{leader}, slices.DeleteFunc(g.Live(), func(w *grouptest.Worker) bool { return !degraded(w) }))

				restore()
				g.WaitFor(20*time.Second, "the leader is not degraded any more", func() bool { return !degraded(leader) })
				g.WaitFor(10*time.Second, "the newcomer has its share", func() bool { return g.Oracle.Idle() == 0 && runsOf(g, newcomer.ID()) > 0 })
				g.WaitFor(time.Second, "the alert is over", func() bool { return len(diaries[leader].levels()) == 2 })
				require.Equal(t, []parti.AlertLevel{parti.AlertWarn, parti.AlertOver}, diaries[leader].levels())
			}, fast, grouptest.Partitions(30))
		})
	}
}

// A leader that loses the lead does not say any more that it cannot publish: the next one says it.
func TestFormerLeaderDoesNotSayThatItCannotPublish(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitFor(10*time.Second, "an even share each", func() bool { return g.Oracle.Idle() == 0 && g.Spread() == 0 })
		g.Sleep(5 * time.Second)
		former := g.Leader()
		restore := noCommits(t, g.Env.Connect("operator").JS(), tooLarge)
		g.Start(1)
		g.WaitFor(ttl+5*beat, "the leader says it", func() bool { return saysCannotPublish(former) })
		former.Cut()
		g.WaitFor(2*leadTerm, "it does not lead", func() bool { return !former.Manager.IsLeader() })
		g.WaitFor(beat, "and does not say it", func() bool { return !saysCannotPublish(former) })
		says := func() []*grouptest.Worker {
			return slices.DeleteFunc(g.Live(), func(w *grouptest.Worker) bool { return !saysCannotPublish(w) })
		}
		g.WaitFor(time.Minute, "the next one says it", func() bool { return len(says()) == 1 && says()[0].Manager.IsLeader() })
		former.Heal()
		g.WaitFor(time.Minute, "the former one is there again", func() bool { return former.Manager.Status().Incarnation != "" && !degraded(former) })
		restore()
		g.WaitFor(time.Minute, "nobody is degraded", func() bool { return !slices.ContainsFunc(g.Live(), degraded) })
		g.WaitAllRunning(time.Minute)
	}, fast, grouptest.Partitions(30))
}
