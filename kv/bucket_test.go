package kv_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestBucketsHaveAllSettings(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	cfg := memory()
	cfg.Storage = jetstream.FileStorage
	b := ensure(t, c, cfg)
	require.Equal(t, "orders-control", b.Control.Bucket())
	require.Equal(t, "orders-heartbeat", b.Heartbeat.Bucket())
	require.Equal(t, ttl, b.Heartbeat.HeartbeatTTL())
	require.Zero(t, b.Control.HeartbeatTTL())

	for _, s := range []*kv.Store{b.Control, b.Heartbeat} {
		stream, err := c.JS().Stream(t.Context(), s.Stream())
		require.NoError(t, err)
		got := stream.CachedInfo().Config
		require.Equal(t, []string{"$KV." + s.Bucket() + ".>"}, got.Subjects)
		require.Equal(t, jetstream.FileStorage, got.Storage)
		require.Equal(t, 1, got.Replicas)
		require.Equal(t, int64(1), got.MaxMsgsPerSubject)
		require.Equal(t, 10_000, got.MaxConsumers)
		require.Equal(t, jetstream.DiscardNew, got.Discard)
		require.Equal(t, 10*time.Minute, got.SubjectDeleteMarkerTTL)
		require.Equal(t, "orders", got.Metadata["parti"])
		require.Equal(t, "$KV."+s.Bucket()+".*.*", got.RePublish.Source)
		require.Equal(t, "_PARTI.orders.live.{{wildcard(1)}}.{{wildcard(2)}}", got.RePublish.Destination)
		require.True(t, got.DenyDelete && got.AllowRollup && got.AllowDirect && got.AllowMsgTTL && got.AllowAtomicPublish)

		bucket, err := c.JS().KeyValue(t.Context(), s.Bucket()) // opens as an ordinary bucket
		require.NoError(t, err)
		_, err = bucket.Create(t.Context(), "a.b", []byte("x"))
		require.NoError(t, err)
		e, err := s.Get(t.Context(), "a.b")
		require.NoError(t, err)
		require.Equal(t, "x", string(e.Value))
	}
}

func TestEnsureIsIdempotentAndConcurrent(t *testing.T) {
	env := single(t)
	const workers = 8
	created := make(chan time.Time, workers)
	for range workers {
		c := env.Connect("w")
		go func() {
			b, err := kv.EnsureBuckets(t.Context(), c.JS(), memory())
			if err != nil {
				t.Error(err)
				created <- time.Time{}
				return
			}
			created <- b.Control.Created()
		}()
	}
	first := <-created
	for range workers - 1 {
		require.Equal(t, first, <-created)
	}
	b, err := kv.OpenBuckets(t.Context(), env.Connect("r").JS(), ns)
	require.NoError(t, err)
	require.Equal(t, ttl, b.Heartbeat.HeartbeatTTL())
	require.Equal(t, first, b.Control.Created())
}

func TestOpenBucketsCreatesNothing(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	_, err := kv.OpenBuckets(t.Context(), c.JS(), ns)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.Zero(t, streams(t, env))

	_, err = c.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "orders-heartbeat"})
	require.NoError(t, err)
	_, err = kv.OpenBuckets(t.Context(), c.JS(), ns)
	require.ErrorIs(t, err, types.ErrForeignBucket)
}

func TestForeignBucketsAreRefused(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	mine := func() jetstream.StreamConfig {
		ensure(t, c, memory())
		s, err := c.JS().Stream(t.Context(), "KV_orders-control")
		require.NoError(t, err)
		return s.CachedInfo().Config
	}()
	for name, tc := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   string
	}{
		"no metadata":    {func(s *jetstream.StreamConfig) { s.Metadata = nil }, `metadata says parti="", expected "orders": choose another namespace`},
		"another's":      {func(s *jetstream.StreamConfig) { s.Metadata = map[string]string{"parti": "x"} }, `parti="x"`},
		"other subjects": {func(s *jetstream.StreamConfig) { s.Subjects = []string{"$KV.orders-control.a.>"} }, "subjects"},
		"age":            {func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }, "its keys are dropped after 1h0m0s"},
		"storage":        {func(s *jetstream.StreamConfig) { s.Storage = jetstream.FileStorage }, "storage cannot be changed"},
		"history":        {func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject = 5 }, "keeps 5 values per key"},
		"deny purge":     {func(s *jetstream.StreamConfig) { s.DenyPurge, s.AllowRollup, s.SubjectDeleteMarkerTTL = true, false, 0 }, "refuses purges"},
		"drops messages": {func(s *jetstream.StreamConfig) { s.MaxMsgs, s.Discard = 10, jetstream.DiscardOld },
			"limited to 10 messages and drops its oldest keys for new ones"},
		"drops bytes": {func(s *jetstream.StreamConfig) { s.MaxBytes, s.Discard = 1<<20, jetstream.DiscardOld },
			"nats stream edit KV_orders-control --discard new"},
		"several at once": {func(s *jetstream.StreamConfig) { s.Metadata, s.MaxMsgsPerSubject = nil, 2 }, "; it keeps 2"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := mine
			tc.change(&cfg)
			require.NoError(t, c.JS().DeleteStream(t.Context(), cfg.Name))
			_, err := c.JS().CreateStream(t.Context(), cfg)
			require.NoError(t, err)
			_, err = kv.EnsureBuckets(t.Context(), c.JS(), memory())
			require.ErrorIs(t, err, types.ErrForeignBucket)
			require.ErrorContains(t, err, tc.want)
			s, err := c.JS().Stream(t.Context(), cfg.Name)
			require.NoError(t, err)
			require.Zero(t, s.CachedInfo().State.LastSeq, "nothing may be written to a foreign bucket")
		})
	}
}

func TestHeartbeatTTLMismatchSaysWhatToDo(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	ensure(t, c, memory())
	cfg := memory()
	cfg.HeartbeatTTL = 20 * time.Second
	_, err := kv.EnsureBuckets(t.Context(), c.JS(), cfg)
	require.ErrorIs(t, err, types.ErrForeignBucket)
	require.ErrorContains(t, err, "its keys live 15s, this worker has 20s")
	require.ErrorContains(t, err, "give all workers of the namespace one HeartbeatTTL")
	require.ErrorContains(t, err, "delete the stream KV_orders-heartbeat")
}

func TestSettingsArePutRight(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	// Somebody's tool made the bucket as KV buckets are made, with the right owner.
	_, err := c.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "orders-control", Storage: jetstream.MemoryStorage, Metadata: map[string]string{"parti": "orders"},
	})
	require.NoError(t, err)
	var log bytes.Buffer
	cfg := memory()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := ensure(t, c, cfg)
	require.Contains(t, log.String(), "bucket settings put right")
	require.Contains(t, log.String(), "AllowMsgTTL, AllowAtomicPublish")

	revs, err := b.Control.Batch(t.Context(), []kv.Write{{Key: "a.b", Value: []byte("x"), TTL: time.Second}})
	require.NoError(t, err)
	require.Len(t, revs, 1)
	log.Reset()
	ensure(t, c, cfg)
	require.Empty(t, log.String(), "put right for good")

	// UpdateKeyValue silently resets what it does not know.
	_, err = c.JS().UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "orders-control", Storage: jetstream.MemoryStorage, Metadata: map[string]string{"parti": "orders"}, LimitMarkerTTL: time.Minute,
	})
	require.NoError(t, err)
	_, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.c", Value: []byte("x")}})
	require.ErrorIs(t, err, types.ErrForeignBucket)
	ensure(t, c, cfg)
	_, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.c", Value: []byte("x")}})
	require.NoError(t, err)
}

// A limit that refuses what is new loses nothing, so it is the operator's to set: the bucket is taken as it is, and stays so.
func TestLimitsThatRefuseAreAllowed(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	b := ensure(t, c, memory())
	for _, s := range []*kv.Store{b.Control, b.Heartbeat} {
		limit(t, c, s, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs, cfg.MaxBytes, cfg.MaxMsgSize = 1000, 1<<20, 1<<16 })
	}
	var log bytes.Buffer
	cfg := memory()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b = ensure(t, c, cfg)
	require.Empty(t, log.String())
	_, err := b.Control.Put(t.Context(), "a.b", nil, 0, 0)
	require.NoError(t, err)
	stream, err := c.JS().Stream(t.Context(), b.Control.Stream())
	require.NoError(t, err)
	require.EqualValues(t, 1000, stream.CachedInfo().Config.MaxMsgs)
}

// Without limits, discard old drops nothing; the other two make a bucket useless, and can be put right.
func TestDiscardIsPutRight(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"Discard":              func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardOld },
		"DiscardNewPerSubject": func(s *jetstream.StreamConfig) { s.DiscardNewPerSubject = true },
		"NoAck":                func(s *jetstream.StreamConfig) { s.NoAck = true },
	} {
		t.Run(name, func(t *testing.T) {
			env := single(t)
			c := env.Connect("a")
			b := ensure(t, c, memory())
			stream, err := c.JS().Stream(t.Context(), b.Control.Stream())
			require.NoError(t, err)
			sc := stream.CachedInfo().Config
			change(&sc)
			require.NoError(t, c.JS().DeleteStream(t.Context(), sc.Name))
			_, err = c.JS().CreateStream(t.Context(), sc)
			require.NoError(t, err)
			var log bytes.Buffer
			cfg := memory()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			b = ensure(t, c, cfg)
			require.Contains(t, log.String(), "settings="+name)
			rev, err := b.Control.Put(within(t, 10*time.Second), "a.b", nil, 0, 0)
			require.NoError(t, err)
			_, err = b.Control.Put(within(t, 10*time.Second), "a.b", nil, rev, 0)
			require.NoError(t, err)
		})
	}
}

func TestServerWithoutJetStream(t *testing.T) {
	env := single(t, natstest.WithServerOptions(func(o *server.Options) { o.JetStream = false }))
	_, err := kv.EnsureBuckets(t.Context(), env.Connect("a").JS(), memory())
	require.ErrorIs(t, err, types.ErrJetStreamDisabled)
	require.ErrorContains(t, err, "enable JetStream on the server and for the account")
}

func TestAccountWithoutJetStream(t *testing.T) {
	env := single(t, natstest.WithServerOptions(func(o *server.Options) {
		acc := server.NewAccount("PLAIN")
		o.Accounts = []*server.Account{acc}
		o.Users = []*server.User{{Username: "u", Password: "p", Account: acc}}
	}))
	_, err := kv.EnsureBuckets(t.Context(), env.Connect("a", nats.UserInfo("u", "p")).JS(), memory())
	require.ErrorIs(t, err, types.ErrJetStreamDisabled)
}

func TestNoServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("a")
		env.Server.Stop()
		_, err := kv.EnsureBuckets(within(t, 100*time.Millisecond), c.JS(), memory())
		require.ErrorIs(t, err, types.ErrNoServer)

		c.Kill()
		_, err = kv.EnsureBuckets(within(t, 100*time.Millisecond), c.JS(), memory())
		require.ErrorIs(t, err, types.ErrConnectionClosed)
	})
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.12.0": true, "2.12.0-RC.1": true, "2.15.3": true, "3.0.0": true, "10.1.0": true, "": true, "custom": true,
		"2.11.9": false, "2.9.25": false, "1.99.0": false, "2.11.0-dev": false,
	} {
		err := kv.CheckVersion(version)
		if ok {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, types.ErrServerTooOld, version)
		require.ErrorContains(t, err, "it is "+version+", at least 2.12 is needed")
	}
}

// In another domain the API has another prefix, and writes go through it.
func TestDomain(t *testing.T) {
	env := single(t, natstest.WithServerOptions(func(o *server.Options) { o.JetStreamDomain = "hub" }))
	js, err := jetstream.NewWithDomain(env.Connect("a").Conn(), "hub")
	require.NoError(t, err)
	b, err := kv.EnsureBuckets(t.Context(), js, memory())
	require.NoError(t, err)
	sub, err := js.Conn().SubscribeSync(kv.LiveSubject(ns, "*.*"))
	require.NoError(t, err)
	rev, err := b.Control.Create(t.Context(), "a.b", []byte("x"), time.Second)
	require.NoError(t, err)
	_, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.b", Expect: rev}, {Key: "a.c"}})
	require.NoError(t, err)
	l, err := b.Control.List(t.Context(), "a.*")
	require.NoError(t, err)
	require.Len(t, l, 2)
	m, err := sub.NextMsg(30 * time.Second)
	require.NoError(t, err)
	e, err := kv.ParseLive(ns, m)
	require.NoError(t, err)
	require.Equal(t, rev, e.Revision)
}

func TestForgetLeavesNothingButNewer(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := ensure(t, c, memory()).Control
	old, err := s.Put(t.Context(), "a.b", []byte("1"), 0, 0)
	require.NoError(t, err)
	now, err := s.Put(t.Context(), "a.b", []byte("2"), old, 0)
	require.NoError(t, err)
	require.NoError(t, s.Forget(t.Context(), "a.b", old))
	e, err := s.Get(t.Context(), "a.b")
	require.NoError(t, err)
	require.Equal(t, "2", string(e.Value))
	require.NoError(t, s.Forget(t.Context(), "a.b", now))
	_, err = s.Get(t.Context(), "a.b")
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Zero(t, stored(t, c, s))
}
