package integration

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A connection that is closed does not come back: the Manager says so and ends, its handlers with it, and others take over.
func TestClosedConnectionEndsTheManager(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3)
		g.WaitAllRunning(10 * time.Second)
		w := g.Follower()
		w.Client.Conn().Close()
		g.WaitFor(ttl, "the Manager ends", func() bool { return w.Manager.State() == parti.StateStopped })
		s := w.Manager.Status()
		err := w.StopWithin(context.Background())
		require.ErrorIs(t, err, nats.ErrConnectionClosed, "there was no way to say goodbye")
		require.ErrorIs(t, err, parti.ErrConnectionClosed)
		require.Zero(t, s.Running)
		require.Zero(t, s.LeaseLeft)
		require.ErrorIs(t, s.LastError, parti.ErrConnectionClosed)
		require.ErrorIs(t, w.Manager.Start(context.Background()), parti.ErrStopped)
		_, err = w.Manager.Drain(context.Background())
		require.ErrorIs(t, err, parti.ErrStopped)
		others := g.Live()[:0:0]
		for _, o := range g.Live() {
			if o != w {
				others = append(others, o)
			}
		}
		t.Logf("taken over within %v", g.WaitRunningOn(ttl+announced, others...))
	}, fast, grouptest.Partitions(12))
}

// What a start says about connections and servers that time does not mend, at once.
func TestStartRefusesAtOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		begin := func(c *natstest.Client, opts ...parti.Option) error {
			m, err := parti.NewManager(c.JS(), source.Static(types.NewPartition("a")), strategy.Sticky(), opts...)
			require.NoError(t, err)
			began := time.Now()
			err = m.Start(t.Context())
			require.Less(t, time.Since(began), time.Second)
			require.NoError(t, m.Stop(context.Background()))
			return err
		}
		err := begin(env.Connect("w"), parti.WithReplicas(3))
		require.ErrorIs(t, err, parti.ErrInvalidConfig)
		require.ErrorContains(t, err, "use 1")

		closed := env.Connect("x")
		closed.Conn().Close()
		require.ErrorIs(t, begin(closed), parti.ErrConnectionClosed)
	})
}

// Orders for nobody are refused, and nothing is waited for without end.
func TestOrdersForNobody(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("operator").JS()
		_, err := parti.Drain(context.Background(), js, "nobody", "w")
		require.ErrorIs(t, err, parti.ErrNoGroup)
		_, err = parti.Drain(context.Background(), nil, "nobody", "w")
		require.ErrorIs(t, err, parti.ErrInvalidConfig)

		// A group that has ended: nobody answers, and the order is void when somebody starts much later.
		m, err := parti.NewManager(env.Connect("w").JS(), source.Static(types.NewPartition("a")), strategy.Sticky(), parti.WithNamespace("gone"))
		require.NoError(t, err)
		require.NoError(t, m.Start(t.Context()))
		_, err = m.Drain(t.Context())
		require.ErrorIs(t, err, parti.ErrRefused, "the last worker")
		require.NoError(t, m.Stop(context.Background()))
		began := time.Now()
		_, err = parti.Drain(context.Background(), js, "gone", "worker-0")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), time.Minute)
	})
}
