package integration

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// What NewManager refuses, each with a named error and a text that says what to write instead.
func TestNewManagerRefusesBadInput(t *testing.T) {
	env := natstest.Single(t)
	js := env.Connect("w").JS()
	good := source.Static(types.NewPartition("a"))
	for _, c := range []struct {
		name   string
		js     jetstream.JetStream
		source types.PartitionSource
		strat  types.AssignmentStrategy
		opts   []parti.Option
		want   error
		text   string
	}{
		{"no JetStream", nil, good, strategy.Sticky(), nil, parti.ErrInvalidConfig, "jetstream.New"},
		{"no source", js, nil, strategy.Sticky(), nil, parti.ErrInvalidConfig, "source.Static"},
		{"no strategy", js, good, nil, nil, parti.ErrInvalidConfig, "strategy.Sticky"},
		{"nil option", js, good, strategy.Sticky(), []parti.Option{nil}, parti.ErrInvalidConfig, "option"},
		{"no partitions, and none to come", js, source.Static(), strategy.Sticky(), nil, parti.ErrNoPartitions, ""},
		{"duplicate partition", js, source.Static(types.NewPartition("a"), types.NewPartition("a")), strategy.Sticky(), nil, parti.ErrDuplicatePartition, "\"a\""},
		{"no keys", js, source.Static(types.Partition{}), strategy.Sticky(), nil, parti.ErrInvalidPartition, "no keys"},
		{"empty key", js, source.Static(types.NewPartition("")), strategy.Sticky(), nil, parti.ErrInvalidPartition, "empty"},
		{"key with a dot", js, source.Static(types.NewPartition("a.b")), strategy.Sticky(), nil, parti.ErrInvalidPartition, "split it"},
		{"key with a wildcard", js, source.Static(types.NewPartition("a*")), strategy.Sticky(), nil, parti.ErrInvalidPartition, "wildcard"},
		{"key with a space", js, source.Static(types.NewPartition("a b")), strategy.Sticky(), nil, parti.ErrInvalidPartition, "white space"},
		{"key that is too long", js, source.Static(types.NewPartition(strings.Repeat("k", 300))), strategy.Sticky(), nil, parti.ErrInvalidPartition, "shorter"},
		{"negative weight", js, source.Static(types.Partition{Keys: []string{"a"}, Weight: -1}), strategy.Sticky(), nil, parti.ErrInvalidPartition, "negative"},
		{"worker ID with a dot", js, good, strategy.Sticky(), []parti.Option{parti.WithWorkerID("host.1")}, parti.ErrInvalidWorkerID, "host-1"},
		{"worker ID of the protocol", js, good, strategy.Sticky(), []parti.Option{parti.WithWorkerID("_commit")}, parti.ErrInvalidWorkerID, "'_'"},
		{"bad label", js, good, strategy.Sticky(), []parti.Option{parti.WithLabels("a b")}, parti.ErrInvalidLabel, ""},
		{"namespace with a dot", js, good, strategy.Sticky(), []parti.Option{parti.WithNamespace("a.b")}, parti.ErrInvalidConfig, "Namespace"},
		{"TTL under three intervals", js, good, strategy.Sticky(), []parti.Option{parti.WithHeartbeat(time.Second, 2500*time.Millisecond)}, parti.ErrInvalidConfig, "TTL"},
		{"lease in fractions of a second", js, good, strategy.Sticky(), []parti.Option{parti.WithLeaderLease(1500 * time.Millisecond)}, parti.ErrInvalidConfig, "whole seconds"},
		{"replicas", js, good, strategy.Sticky(), []parti.Option{parti.WithReplicas(7)}, parti.ErrInvalidConfig, "Replicas"},
		{"options of a strategy", js, good, strategy.ConsistentHash(strategy.WithLoadFactor(0.5)), nil, parti.ErrInvalidConfig, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := parti.NewManager(c.js, c.source, c.strat, c.opts...)
			require.Nil(t, m)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err := parti.NewManager(nil, nil, nil, parti.WithNamespace("a.b"), parti.WithReplicas(9))
	for _, part := range []string{"JetStream", "source", "strategy", "Namespace", "Replicas"} {
		require.ErrorContains(t, err, part, "everything is reported at once")
	}
	streams := 0
	for range js.StreamNames(t.Context()).Name() {
		streams++
	}
	require.Zero(t, streams, "nothing was written")
}

func manager(t *testing.T, js jetstream.JetStream, opts ...parti.Option) *parti.Manager {
	t.Helper()
	m, err := parti.NewManager(js, source.Static(types.NewPartition("a")), strategy.Sticky(),
		append([]parti.Option{parti.WithNamespace("orders"), parti.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return m
}

func TestStartWithoutJetStream(t *testing.T) {
	env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) { o.JetStream = false }))
	m := manager(t, env.Connect("w").JS())
	err := m.Start(t.Context())
	require.ErrorIs(t, err, parti.ErrJetStreamDisabled)
	require.ErrorContains(t, err, "enable JetStream")
	require.Equal(t, parti.StateStopped, m.State())
}

// No server: a clear error when the start's deadline passes, and patience where asked for.
func TestStartWithoutServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w")
		c.Gate().Cut()
		began := time.Now()
		m := manager(t, c.JS(), parti.WithStartTimeout(5*time.Second), parti.WithStorage(jetstream.MemoryStorage))
		err := m.Start(t.Context())
		require.ErrorIs(t, err, parti.ErrNoServer)
		require.ErrorContains(t, err, "WithWaitForServer")
		require.InDelta(t, 5*time.Second, time.Since(began), float64(100*time.Millisecond))

		patient := manager(t, c.JS(), parti.WithWaitForServer(), parti.WithStorage(jetstream.MemoryStorage))
		started := make(chan error, 1)
		go func() { started <- patient.Start(context.Background()) }()
		time.Sleep(10 * time.Minute)
		c.Gate().Heal()
		require.NoError(t, <-started)
		require.NoError(t, patient.Stop(context.Background()))
	})
}

// Stop ends a Start that waits.
func TestStopEndsAStartThatWaits(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w")
		c.Gate().Cut()
		m := manager(t, c.JS(), parti.WithWaitForServer())
		started := make(chan error, 1)
		go func() { started <- m.Start(context.Background()) }()
		time.Sleep(time.Minute)
		require.NoError(t, m.Stop(context.Background()))
		require.ErrorIs(t, <-started, parti.ErrStopped)
		require.ErrorIs(t, m.WaitReady(context.Background()), parti.ErrStopped)
	})
}

func TestStartOverAForeignBucket(t *testing.T) {
	env := natstest.Single(t)
	js := env.Connect("w").JS()
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "orders-control"})
	require.NoError(t, err)
	err = manager(t, js).Start(t.Context())
	require.ErrorIs(t, err, parti.ErrForeignBucket)
	require.ErrorContains(t, err, "choose another namespace")
}

func TestStartWithAnotherTTLThanTheGroup(t *testing.T) {
	env := natstest.Single(t)
	js := env.Connect("w").JS()
	first := manager(t, js)
	require.NoError(t, first.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, first.Stop(context.Background())) })
	err := manager(t, js, parti.WithHeartbeat(time.Second, 5*time.Second)).Start(t.Context())
	require.ErrorIs(t, err, parti.ErrForeignBucket)
	require.ErrorContains(t, err, "HeartbeatTTL")
}

func TestStartWithoutPermission(t *testing.T) {
	for _, c := range []struct {
		name string
		deny server.SubjectPermission
		pub  bool
		text string
	}{
		{"publish to the bucket", server.SubjectPermission{Deny: []string{"$KV.>"}}, true, "$KV."},
		{"subscribe to the live feed", server.SubjectPermission{Deny: []string{"_PARTI.>"}}, false, "_PARTI."},
		{"create streams", server.SubjectPermission{Deny: []string{"$JS.API.STREAM.CREATE.>"}}, true, "STREAM.CREATE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			perms := &server.Permissions{}
			if c.pub {
				perms.Publish = &c.deny
			} else {
				perms.Subscribe = &c.deny
			}
			env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) {
				o.Users = []*server.User{{Username: "u", Password: "p", Permissions: perms}}
			}))
			js := env.Connect("w", nats.UserInfo("u", "p")).JS()
			err := manager(t, js).Start(t.Context())
			require.ErrorIs(t, err, parti.ErrPermission)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestCallsOutOfOrder(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := context.Background()
		m := manager(t, env.Connect("w").JS(), parti.WithStorage(jetstream.MemoryStorage))
		require.Equal(t, parti.StateInit, m.State())
		require.False(t, m.IsLeader())
		require.Empty(t, m.WorkerID())
		require.Empty(t, m.Assignment().Partitions)
		require.False(t, m.Owns(types.NewPartition("a")))
		require.ErrorIs(t, m.Refresh(ctx), parti.ErrNotStarted)
		require.NoError(t, m.Start(ctx))
		require.ErrorIs(t, m.Start(ctx), parti.ErrAlreadyStarted)
		require.NoError(t, m.WaitReady(ctx))
		require.NoError(t, m.Stop(ctx))
		require.NoError(t, m.Stop(ctx), "twice is once")
		require.ErrorIs(t, m.Start(ctx), parti.ErrStopped)
		require.ErrorIs(t, m.Refresh(ctx), parti.ErrStopped)
		require.Equal(t, parti.StateStopped, m.State())
		changes, stop := m.Subscribe()
		require.Equal(t, parti.StateStopped, (<-changes).To)
		_, open := <-changes
		require.False(t, open)
		stop()
		unstarted := manager(t, env.Connect("w2").JS())
		require.NoError(t, unstarted.Stop(ctx))
		require.ErrorIs(t, unstarted.Start(ctx), parti.ErrStopped)
	})
}
