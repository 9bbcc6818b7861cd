package integration

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
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
		{"TTL under three intervals", js, good, strategy.Sticky(), []parti.Option{parti.WithHeartbeat(1200*time.Millisecond, 3*time.Second)}, parti.ErrInvalidConfig, "must be at least two intervals"},
		{"TTL in fractions of a second", js, good, strategy.Sticky(), []parti.Option{parti.WithHeartbeat(time.Second, 4500*time.Millisecond)}, parti.ErrInvalidConfig, "whole seconds"},
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
	requireStreams(t, js)
}

// requireStreams checks that the server has these streams and no others.
func requireStreams(t *testing.T, js jetstream.JetStream, names ...string) {
	t.Helper()
	var have []string
	l := js.StreamNames(t.Context())
	for name := range l.Name() {
		have = append(have, name)
	}
	require.NoError(t, l.Err())
	require.ElementsMatch(t, names, have, "nothing was written")
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
		witness(t, env, "orders")
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
		witness(t, env, "orders")
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

// A bucket of somebody else, whichever it is: nothing is changed in it, and the other one is not made.
func TestStartOverAForeignBucket(t *testing.T) {
	for _, bucket := range []string{"orders-control", "orders-heartbeat"} {
		t.Run(bucket, func(t *testing.T) {
			env := natstest.Single(t)
			js := env.Connect("w").JS()
			_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket})
			require.NoError(t, err)
			before := streamOf(t, js, bucket)
			err = manager(t, js).Start(t.Context())
			require.ErrorIs(t, err, parti.ErrForeignBucket)
			require.ErrorContains(t, err, "choose another namespace")
			require.Equal(t, before, streamOf(t, js, bucket))
			requireStreams(t, js, "KV_"+bucket)
		})
	}
}

// seen is what a refused start could have changed in a bucket.
type seen struct {
	config jetstream.StreamConfig
	last   uint64
}

func streamOf(t *testing.T, js jetstream.JetStream, bucket string) seen {
	t.Helper()
	s, err := js.Stream(t.Context(), "KV_"+bucket)
	require.NoError(t, err)
	return seen{s.CachedInfo().Config, s.CachedInfo().State.LastSeq}
}

func TestStartWithAnotherTTLThanTheGroup(t *testing.T) {
	env := natstest.Single(t)
	js := env.Connect("w").JS()
	first := manager(t, js)
	require.NoError(t, first.Start(t.Context()))
	require.NoError(t, first.Stop(context.Background()))
	control, beats := streamOf(t, js, "orders-control"), streamOf(t, js, "orders-heartbeat")
	for _, h := range []struct{ interval, ttl time.Duration }{{time.Second, 5 * time.Second}, {10 * time.Second, time.Minute}} {
		err := manager(t, js, parti.WithHeartbeat(h.interval, h.ttl)).Start(t.Context())
		require.ErrorIs(t, err, parti.ErrForeignBucket)
		require.ErrorContains(t, err, "HeartbeatTTL")
		require.Equal(t, control, streamOf(t, js, "orders-control"), "nothing is put right by one that is refused")
		require.Equal(t, beats, streamOf(t, js, "orders-heartbeat"))
	}
}

// older is a server that says it is of a release before the oldest that will do.
type older struct{ *server.Server }

func (o older) InProcessConn() (net.Conn, error) {
	c, err := o.Server.InProcessConn()
	return olderConn{c}, err
}

// olderConn writes another release over the server's own, which is in every INFO, and is as long.
type olderConn struct{ net.Conn }

func (c olderConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	release := "2.11." + strings.Repeat("9", len(server.VERSION)-len("2.11."))
	copy(b, bytes.ReplaceAll(b[:n], []byte(`"version":"`+server.VERSION+`"`), []byte(`"version":"`+release+`"`)))
	return n, err
}

// A server that is too old is told so by its release, before anything is written to it.
func TestStartOnAnOldServer(t *testing.T) {
	env := natstest.Single(t)
	js := env.Connect("w", nats.InProcessServer(older{env.Server.Raw()})).JS()
	require.Regexp(t, `^2\.11\.9+$`, js.Conn().ConnectedServerVersion())
	m := manager(t, js)
	err := m.Start(t.Context())
	require.ErrorIs(t, err, parti.ErrServerTooOld)
	require.ErrorContains(t, err, "at least 2.12 is needed")
	require.Equal(t, parti.StateStopped, m.State())
	requireStreams(t, js)
}

func TestStartWithoutPermission(t *testing.T) {
	natstest.Long(t)
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
				o.Users = []*server.User{{Username: "u", Password: "p", Permissions: perms}, {Username: "all", Password: "p"}}
			}))
			js := env.Connect("w", nats.UserInfo("u", "p")).JS()
			err := manager(t, js).Start(t.Context())
			require.ErrorIs(t, err, parti.ErrPermission)
			require.ErrorContains(t, err, c.text)
			requireStreams(t, env.Connect("admin", nats.UserInfo("all", "p")).JS())
		})
	}
}

// A value that the server would refuse for its size is named before anything of it is written, and again when the leader tries again.
func TestPayloadOverTheServersLimit(t *testing.T) {
	natstest.Long(t)
	small := natstest.WithServerOptions(func(o *server.Options) { o.MaxPayload = 256 << 10 })
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, "orders")
		var many []types.Partition
		random := rand.NewChaCha8([32]byte{7})
		for range 2500 { // nothing that can be compressed
			key := make([]byte, 100)
			_, _ = random.Read(key)
			many = append(many, types.NewPartition(hex.EncodeToString(key)))
		}
		src := grouptest.NewSource(many...)
		c := env.Connect("w")
		var told atomic.Pointer[error]
		m, err := parti.NewManager(c.JS(), src, strategy.Sticky(), parti.WithNamespace("orders"), parti.WithStorage(jetstream.MemoryStorage),
			parti.WithHooks(parti.Hooks{OnError: func(err error) { told.Store(&err) }}))
		require.NoError(t, err)
		require.NoError(t, m.Start(t.Context()))
		time.Sleep(time.Minute)
		require.ErrorIs(t, m.Status().LastError, types.ErrPayloadTooLarge)
		require.ErrorContains(t, *told.Load(), "raise its max_payload")
		control, err := c.JS().KeyValue(t.Context(), "orders-control")
		require.NoError(t, err)
		keys, err := control.Keys(t.Context())
		require.NoError(t, err)
		for _, key := range keys {
			require.NotContains(t, key, "assignment.", "nothing of it is written")
		}
		src.Set(many[:100]...)
		require.Eventually(t, func() bool { return len(m.Assignment().Partitions) == 100 }, time.Minute, time.Second)
		require.NoError(t, m.Stop(context.Background()))
	}, small)
}

// witness attaches a checker to a namespace until the test ends.
func witness(t *testing.T, env *natstest.Env, namespace string) *checker.Checker {
	t.Helper()
	return checker.Attach(t, env.Connect("witness").Conn(), namespace)
}

func TestCallsOutOfOrder(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, "orders")
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
