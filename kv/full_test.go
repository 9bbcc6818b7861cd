package kv_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// limit sets limits on the bucket's stream, as an operator does.
func limit(t *testing.T, c *natstest.Client, s *kv.Store, change func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := stream(t, c, s).CachedInfo().Config
	change(&cfg)
	var err error
	for range 12 {
		if _, err = c.JS().UpdateStream(within(t, 10*time.Second), cfg); err == nil {
			return
		}
	}
	require.NoError(t, err)
}

// refused says that nothing was written, for sure, and that the text says why and what to do.
func refused(t *testing.T, err error, says ...string) {
	t.Helper()
	require.Error(t, err)
	require.False(t, kv.IsUnknown(err), err)
	require.False(t, kv.IsConflict(err), err)
	require.NotErrorIs(t, err, kv.ErrUnavailable)
	for _, s := range append(says, "refused") {
		require.ErrorContains(t, err, s)
	}
}

func TestFullBucket(t *testing.T) {
	for _, storage := range []jetstream.StorageType{jetstream.MemoryStorage, jetstream.FileStorage} {
		t.Run(storage.String(), func(t *testing.T) {
			c := single(t).Connect("a")
			cfg := memory()
			cfg.Storage = storage
			fullBucket(t, c, ensure(t, c, cfg).Control, nil)
		})
	}
}

// fullBucket reads what the stream's leader says: a replica may lag behind. landed returns a key's revision where an answer was lost, which happens in a
// cluster only.
func fullBucket(t *testing.T, c *natstest.Client, s *kv.Store, landed func(key string) uint64) {
	ctx := within(t, 2*clusterPatience)
	put := func(key string, value []byte, expect uint64) (uint64, error) {
		rev, lost, err := definite(func() (uint64, error) { return s.Put(ctx, key, value, expect, 0) })
		if lost && kv.IsConflict(err) {
			return landed(key), nil
		}
		return rev, err
	}
	batch := func(writes ...kv.Write) error {
		_, _, err := definite(func() ([]uint64, error) { return s.Batch(ctx, writes) })
		return err
	}
	before := stored(t, c, s)
	rev, err := put("full.one", []byte("x"), 0)
	require.NoError(t, err)
	limit(t, c, s, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = int64(before) + 1 })
	const full = "the bucket is full: raise the limits of its stream"
	_, err = put("full.two", nil, 0)
	refused(t, err, "maximum messages exceeded", full)
	_, _, err = definite(func() (uint64, error) { return s.Create(ctx, "full.two", nil, 0) })
	refused(t, err, full)
	refused(t, batch(kv.Write{Key: "full.two"}, kv.Write{Key: "full.three"}), full)
	refused(t, batch(kv.Write{Key: "full.one", Expect: rev}), full) // the value that it would replace counts
	limit(t, c, s, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs, cfg.MaxBytes = -1, 2000 })
	big := bytes.Repeat([]byte("x"), 2000)
	_, err = put("full.one", big, rev)
	refused(t, err, "maximum bytes exceeded", full)
	refused(t, batch(kv.Write{Key: "full.one", Value: big, Expect: rev}), full)

	require.Equal(t, before+1, stored(t, c, s))
	limit(t, c, s, func(cfg *jetstream.StreamConfig) { cfg.MaxBytes = -1 })
	_, err = put("full.one", nil, rev)
	require.NoError(t, err, "nothing was written over it")
}

func TestFullServer(t *testing.T) {
	env := single(t, natstest.WithServerOptions(func(o *server.Options) { o.JetStreamMaxMemory = 20_000 }))
	s := ensure(t, env.Connect("a"), memory()).Control
	ctx := within(t, 30*time.Second)
	_, err := s.Put(ctx, "a.fill", make([]byte, 21_000), 0, 0) // one message may go beyond
	require.NoError(t, err)
	_, err = s.Put(ctx, "a.more", nil, 0, 0)
	refused(t, err, "10023", "the server's storage for JetStream is full")
	_, err = s.Batch(ctx, []kv.Write{{Key: "a.more"}, {Key: "a.most"}})
	require.False(t, kv.IsUnknown(err), err)
	_, err = s.Get(ctx, "a.more")
	require.ErrorIs(t, err, kv.ErrNotFound)
}

// accountLimit gives the account so much storage of either kind.
func accountLimit(t *testing.T, env *natstest.Env, size int64) {
	t.Helper()
	require.NoError(t, env.Server.Raw().GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{
		"": {MaxMemory: size, MaxStore: size, MaxStreams: -1, MaxConsumers: -1},
	}))
}

func TestFullAccount(t *testing.T) {
	env := single(t)
	s := ensure(t, env.Connect("a"), memory()).Control
	ctx := within(t, 30*time.Second)
	_, err := s.Put(ctx, "a.fill", make([]byte, 15_000), 0, 0)
	require.NoError(t, err)
	accountLimit(t, env, 20_000)
	_, err = s.Put(ctx, "a.more", make([]byte, 6_000), 0, 0)
	refused(t, err, "10002", "the account's storage for JetStream is full")
	_, err = s.Get(ctx, "a.more")
	require.ErrorIs(t, err, kv.ErrNotFound)
}

// What the documentation of Batch says about an account whose storage ends in the midst of one. A server that does better makes this fail,
// and the documentation with it.
func TestBatchInAFullAccount(t *testing.T) {
	natstest.Long(t)
	for _, c := range []struct {
		sizes   [3]int // of the batch's values; 5,000 bytes are left
		stored  int
		unknown bool // nobody answers: the refused message is not the last one
	}{
		{sizes: [3]int{2_000, 2_000, 2_000}, stored: 2},
		{sizes: [3]int{2_000, 4_000, 500}, stored: 1, unknown: true},
		{sizes: [3]int{500, 500, 6_000}},
	} {
		env := single(t)
		s := ensure(t, env.Connect("a"), memory()).Control
		_, err := s.Put(t.Context(), "a.fill", make([]byte, 15_000), 0, 0)
		require.NoError(t, err)
		accountLimit(t, env, 20_000)
		keys := []string{"b.0", "b.1", "b.2"}
		var writes []kv.Write
		for i, k := range keys {
			writes = append(writes, kv.Write{Key: k, Value: make([]byte, c.sizes[i])})
		}
		patience := 30 * time.Second
		if c.unknown {
			patience = 3 * time.Second
		}
		_, err = s.Batch(within(t, patience), writes)
		if require.Error(t, err); c.unknown {
			require.ErrorIs(t, err, types.ErrOutcomeUnknown)
		} else {
			refused(t, err, "10002")
		}
		for i, k := range keys {
			if _, err := s.Get(t.Context(), k); i < c.stored {
				require.NoError(t, err, "%v: %s", c.sizes, k)
			} else {
				require.ErrorIs(t, err, kv.ErrNotFound, "%v: %s", c.sizes, k)
			}
		}
	}
}
