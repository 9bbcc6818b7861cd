package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// gauges keeps what a worker measures of what nothing else shows.
type gauges struct {
	types.NopMetrics
	mu       sync.Mutex
	failed   map[string]int // handlers that failed, by partition
	panicked int
	source   []error
	standing int
}

func (m *gauges) HandlerFailed(partition string, panicked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed[partition]++
	if panicked {
		m.panicked++
	}
}

func (m *gauges) SourceFailed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source = append(m.source, err)
}

func (m *gauges) WorkersStandingBy(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standing = n
}

// Failures of user code, and who stands by, are measured.
func TestFailuresAreMeasured(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		m := gauges{failed: map[string]int{}}
		var once sync.Once
		g.Start(1, parti.WithMetrics(&m), parti.WithMaxWorkers(1), parti.WithHandler(func(ctx context.Context, o parti.Ownership) error {
			once.Do(func() { panic("the first one") })
			if o.Partition.ID() == "p-0001" {
				return errors.New("not today")
			}
			<-ctx.Done()
			return nil
		}))
		g.Sleep(20 * time.Second)
		g.Start(2)
		g.Source.Fail(errors.New("no table"))
		require.Error(t, g.Leader().Manager.Refresh(context.Background()))
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Equal(t, 1, m.panicked)
		require.Greater(t, m.failed["p-0001"], 2)
		require.NotEmpty(t, m.source)
		require.ErrorIs(t, m.source[0], parti.ErrSourceFailed)
		require.Equal(t, 2, m.standing)
	}, fast, grouptest.Partitions(4))
}

// Who gets what has no label is the leader's setting.
func TestUnlabeledPolicyIsTheLeaders(t *testing.T) {
	for policy, share := range map[types.UnlabeledPolicy]int{types.UnlabeledDedicated: 0, types.UnlabeledShared: 6} {
		t.Run(string(policy), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				first := g.Start(1, parti.WithUnlabeledPolicy(policy))[0]
				g.WaitFor(10*time.Second, "it leads", first.Manager.IsLeader)
				labelled := g.Start(1, parti.WithLabels("gpu"))[0]
				g.WaitAllRunning(10 * time.Second)
				g.Sleep(20 * time.Second)
				require.Equal(t, share, g.Counts()[labelled.ID()])
			}, fast, grouptest.Partitions(12))
		})
	}
}

// The number that is expected ends the wait for more.
func TestExpectedWorkersEndTheWait(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.Sleep(10 * time.Second)
		require.Equal(t, 12, g.Oracle.Idle(), "they wait for the third")
		g.Start(1)
		g.WaitAllRunning(time.Second)
		require.Zero(t, g.Spread())
	}, fast, grouptest.Manager(parti.WithWindows(time.Minute, time.Minute, time.Minute), parti.WithExpectedWorkers(3)), grouptest.Partitions(12))
}

// Row 40, in virtual time: writes of heartbeats are refused while the connection is up and reads work. It is said, first that the heartbeat cannot
// be written, then that the incarnation has ended; both are over when they are taken again.
func TestHeartbeatsThatCannotBeWritten(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(2)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(5 * time.Second)
		w := g.Follower()
		ctx, js := context.Background(), w.Client.JS()
		s, err := js.Stream(ctx, "KV_"+grouptest.Namespace+"-heartbeat")
		require.NoError(t, err)
		cfg := s.CachedInfo().Config
		small := cfg
		small.MaxMsgSize = 16
		_, err = js.UpdateStream(ctx, small)
		require.NoError(t, err)
		reads := func() {
			_, err := s.GetLastMsgForSubject(ctx, "$KV."+grouptest.Namespace+"-heartbeat.heartbeat."+w.ID())
			require.NoError(t, err)
		}
		g.WaitFor(ttl, "degraded", func() bool { return degraded(w) })
		require.Contains(t, w.Manager.Status().Degraded, "the heartbeat cannot be written")
		require.NotEmpty(t, w.Manager.Status().Incarnation, "its lease holds")
		reads()
		g.WaitFor(ttl, "it is fenced", func() bool { return w.Manager.Status().Incarnation == "" })
		require.Contains(t, w.Manager.Status().Degraded, "the incarnation ended")
		require.True(t, w.Client.Conn().IsConnected())
		_, err = js.UpdateStream(ctx, cfg)
		require.NoError(t, err)
		g.WaitAllRunning(time.Minute)
		g.WaitFor(ttl, "nobody is degraded", func() bool { return !degraded(w) && !degraded(g.Leader()) })
	}, fast, grouptest.Partitions(10))
}
