package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func startReader(t *testing.T, js jetstream.JetStream, opts ...parti.Option) *Reader {
	t.Helper()
	r, err := NewReader(js, "group", 8, WithLayout(SubjectPerPartition("ORDERS", "orders", 8)),
		WithOffsets(DefaultOffsetsBucket, 1, jetstream.MemoryStorage),
		WithManagerOptions(append(opts, parti.WithStorage(jetstream.MemoryStorage))...))
	require.NoError(t, err)
	return r
}

// Without a server the start takes the Manager's StartTimeout in all, the wait for the offsets included, or waits for ever where asked to.
func TestStartWithoutServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := context.Background()
		c := env.Connect("r")
		c.Gate().Cut()
		hasty := startReader(t, c.JS(), parti.WithStartTimeout(7*time.Second))
		began := time.Now()
		err := hasty.Start(ctx)
		require.ErrorIs(t, err, parti.ErrNoServer)
		require.ErrorIs(t, err, ErrReaderClosed)
		require.ErrorContains(t, err, "parti.WithWaitForServer")
		require.InDelta(t, 7*time.Second, time.Since(began), float64(100*time.Millisecond))
		_, err = hasty.Fetch(ctx, 1)
		require.ErrorIs(t, err, parti.ErrNoServer)
		require.NoError(t, hasty.Close(ctx))

		patient := startReader(t, c.JS(), parti.WithStartTimeout(7*time.Second), parti.WithWaitForServer())
		short, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		require.ErrorIs(t, patient.Start(short), context.DeadlineExceeded) // of the waiting, not of the start
		c.Gate().Heal()
		require.NoError(t, patient.Start(ctx))
		require.NoError(t, patient.Close(ctx))

		closed := startReader(t, c.JS(), parti.WithWaitForServer())
		c.Gate().Cut()
		done := make(chan error, 1)
		go func() { done <- closed.Start(ctx) }()
		time.Sleep(time.Minute)
		require.NoError(t, closed.Close(ctx))
		require.ErrorIs(t, <-done, ErrReaderClosed)
		c.Gate().Heal()
	})
}

// What no waiting cures is an error at once.
func TestStartWithoutJetStream(t *testing.T) {
	env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) { o.JetStream = false }))
	r := startReader(t, env.Connect("r").JS(), parti.WithWaitForServer())
	err := r.Start(t.Context())
	require.ErrorIs(t, err, parti.ErrJetStreamDisabled)
	require.ErrorContains(t, err, "enable JetStream")
	require.NoError(t, r.Close(t.Context()))
}

// A Reader that owns many partitions writes their offsets more rarely.
func TestCommitDelayGrowsWithThePartitions(t *testing.T) {
	s := newRounds(&Reader{cfg: defaultConfig()})
	for n, want := range map[int]time.Duration{
		0: 100 * time.Millisecond, 20: 100 * time.Millisecond, 125: 625 * time.Millisecond, 200: time.Second, 5000: time.Second,
	} {
		require.Equal(t, want, s.delay(n), "%d partitions", n)
	}
}
