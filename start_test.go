package parti

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func newTestManager(t *testing.T, js jetstream.JetStream) *Manager {
	t.Helper()
	m, err := NewManager(js, source.Static(types.NewPartition("a")), strategy.Sticky(), WithStorage(jetstream.MemoryStorage))
	require.NoError(t, err)
	return m
}

// Stop comes when Start has found the buckets and has nothing running yet that could be stopped: nothing is started after Stop has returned.
// Bubble finds what is left behind.
func TestStopAtTheMomentWhenStartBegins(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("w").JS()
		m := newTestManager(t, js)
		m.phase = starting // as far as Start has come
		require.NoError(t, m.Stop(context.Background()))
		require.ErrorIs(t, m.begin(context.Background()), ErrStopped)
		time.Sleep(time.Minute)
		_, err := js.KeyValue(context.Background(), "parti-heartbeat")
		require.NoError(t, err)
		require.Empty(t, m.WorkerID())
		require.Equal(t, StateStopped, m.State())
	})
}

// A connection that is closed just before the feed subscribes: the start fails, and a Stop waits for nothing that was never started.
func TestStartThatCannotSubscribe(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w")
		m := newTestManager(t, c.JS())
		buckets, err := m.findBuckets(context.Background())
		require.NoError(t, err)
		p, err := m.assemble(buckets, make(chan error, 1))
		require.NoError(t, err)
		require.True(t, m.setParts(p))
		c.Conn().Close()
		require.Error(t, p.feed.start())
		p.heartbeats.Close()
		began := time.Now()
		_ = m.Stop(context.Background())
		require.Less(t, time.Since(began), 10*time.Second)
	})
}
