package kv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

const (
	ns  = "orders"
	ttl = 15 * time.Second
)

// memory is the config of tests that need nothing to survive a restart.
func memory() kv.BucketConfig {
	return kv.BucketConfig{Namespace: ns, HeartbeatTTL: ttl, Replicas: 1, Storage: jetstream.MemoryStorage}
}

// single runs a server in real time. What is asked of it without a deadline has 30 s: a busy machine may stand still for seconds.
func single(t testing.TB, opts ...natstest.Option) *natstest.Env {
	t.Helper()
	return natstest.Single(t, opts...)
}

func ensure(t testing.TB, c *natstest.Client, cfg kv.BucketConfig) kv.Buckets {
	t.Helper()
	b, err := kv.EnsureBuckets(t.Context(), c.JS(), cfg)
	require.NoError(t, err)
	return b
}

// within bounds what must not hang; it ends with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func streams(t testing.TB, env *natstest.Env) int {
	t.Helper()
	info, err := env.Server.Raw().Jsz(nil)
	require.NoError(t, err)
	return info.Streams
}
