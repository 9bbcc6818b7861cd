package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// One worker of several cannot read the source, and leads: within two minutes another one does, so that new partitions are assigned. The one
// without a source takes part all the same.
func TestLeaderWithoutASourceStepsDown(t *testing.T) {
	natstest.Long(t)
	h := &heardHooks{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		bad := grouptest.NewSource()
		bad.Fail(errors.New("the password is wrong"))
		first := g.StartFrom(bad, parti.WithHooks(h.hooks()))
		g.Sleep(20 * time.Second)
		g.Start(2)
		require.Equal(t, first, g.Leader(), "it leads, and there is nothing to assign")
		took := g.WaitAllRunning(2 * time.Minute)
		require.NotEqual(t, first, g.Leader())
		t.Logf("assigned after %v", took)
		g.WaitFor(time.Minute, "all have their share", func() bool { return g.Spread() <= 1 })

		g.SetPartitions(5*time.Second, grouptest.Numbered(30)...)
		g.WaitAllRunning(10 * time.Second)
		bad.Fail(nil)
		bad.Set(grouptest.Numbered(30)...)
		for _, w := range g.Others(0) { // it leads again, and may
			w.Stop()
		}
		g.WaitAllRunning(10 * time.Second)
		require.Equal(t, first, g.Leader())
		g.Sleep(5 * time.Minute)
		require.True(t, first.Manager.IsLeader())
		reasons := 0
		for _, v := range h.get() {
			if s, ok := v.(stepping); ok {
				require.ErrorIs(t, s.Reason, types.ErrSourceFailed)
				require.ErrorContains(t, s.Reason, "the password is wrong")
				reasons++
			}
		}
		require.Equal(t, 1, reasons)
	}, fast)
}

// Nobody's source answers: the lead goes round, ever more slowly, and what is assigned stays and is taken care of.
func TestLeadGoesRoundSlowlyWithoutASource(t *testing.T) {
	natstest.Long(t)
	count := &counter{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(20 * time.Second)
		g.Source.Fail(errors.New("the database is gone"))
		running := g.Oracle.Running()
		before := count.elected.Load()
		g.Sleep(15 * time.Minute)
		half := count.elected.Load()
		g.Sleep(15 * time.Minute)
		t.Logf("%d changes of the lead in a quarter of an hour, then %d", half-before, count.elected.Load()-half)
		require.Greater(t, half-before, int64(2), "each of them has tried")
		require.LessOrEqual(t, half-before, int64(12))
		require.LessOrEqual(t, count.elected.Load()-half, int64(6))
		require.Equal(t, running, g.Oracle.Running(), "nothing moved")

		g.Follower().Kill()
		g.WaitRunningOn(ttl+5*time.Second, g.Live()...)
		g.Source.Fail(nil)
		g.SetPartitions(time.Minute, grouptest.Numbered(30)...)
		g.WaitAllRunning(time.Minute)
	}, fast, grouptest.Manager(parti.WithMetrics(count)))
}

// Who alone may lead goes on without its source.
func TestOnlyLeaderStaysWithoutASource(t *testing.T) {
	natstest.Long(t)
	count := &counter{}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(1, parti.WithMetrics(count))
		g.Start(2, parti.WithRole(parti.RoleFollower))
		g.WaitAllRunning(20 * time.Second)
		g.Source.Fail(errors.New("the database is gone"))
		g.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, count.elected.Load())
		require.ErrorIs(t, g.Leader().Manager.Status().LastError, types.ErrSourceFailed)
		g.Follower().Kill()
		g.WaitRunningOn(ttl+5*time.Second, g.Live()...)
	}, fast)
}
