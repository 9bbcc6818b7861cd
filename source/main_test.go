package source

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func bucketConfig() jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{Bucket: "config", Storage: jetstream.MemoryStorage}
}

// newKV returns a client with a source on an ordinary bucket that has just been made.
func newKV(t testing.TB, env *natstest.Env) (*natstest.Client, *KVSource) {
	t.Helper()
	c := env.Connect("a")
	_, err := c.JS().CreateKeyValue(t.Context(), bucketConfig())
	require.NoError(t, err)
	return c, NewKV(c.JS(), "config", "partitions")
}

// single runs a server in real time. What is asked of it without a deadline has 30 s: a busy machine may stand still for seconds.
func single(t testing.TB, opts ...natstest.Option) *natstest.Env {
	t.Helper()
	return natstest.Single(t, opts...)
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func part(i int) types.Partition { return types.NewPartition("p", fmt.Sprintf("%06d", i)) }

func parts(n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = part(i)
	}
	return ps
}

func requireList(t testing.TB, s types.PartitionSource, want ...types.Partition) {
	t.Helper()
	got, err := s.ListPartitions(within(t, 30*time.Second))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, got[i].Equal(want[i]), "%v, want %v", got[i], want[i])
	}
}
