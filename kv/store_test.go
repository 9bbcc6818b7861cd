package kv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// bubble runs f in virtual time with the buckets of the tests.
func bubble(t *testing.T, f func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets)) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("a")
		f(t, env, c, ensure(t, c, memory()))
	})
}

func TestPutIsGuarded(t *testing.T) {
	env := single(t)
	s := ensure(t, env.Connect("a"), memory()).Control
	ctx := t.Context()
	_, err := s.Get(ctx, "a.b")
	require.ErrorIs(t, err, kv.ErrNotFound)
	first, err := s.Put(ctx, "a.b", []byte("1"), 0, 0)
	require.NoError(t, err)
	_, err = s.Put(ctx, "a.b", []byte("2"), 0, 0)
	require.True(t, kv.IsConflict(err))
	_, err = s.Put(ctx, "a.b", []byte("2"), first+1, 0)
	require.True(t, kv.IsConflict(err))
	second, err := s.Put(ctx, "a.b", []byte("2"), first, 0)
	require.NoError(t, err)
	require.Greater(t, second, first)
	e, err := s.Get(ctx, "a.b")
	require.NoError(t, err)
	require.Equal(t, kv.Entry{Key: "a.b", Value: []byte("2"), Revision: second, Op: kv.Put, Created: e.Created}, e)
	require.WithinDuration(t, time.Now(), e.Created, time.Minute)
	require.False(t, e.Absent())

	_, err = s.Delete(ctx, "a.b", first)
	require.True(t, kv.IsConflict(err))
	marker, err := s.Delete(ctx, "a.b", second)
	require.NoError(t, err)
	e, err = s.Get(ctx, "a.b")
	require.NoError(t, err)
	require.Equal(t, kv.Delete, e.Op)
	require.True(t, e.Absent())
	require.Empty(t, e.Value)
	require.Equal(t, marker, e.Revision)
	_, err = s.Put(ctx, "a.b", nil, 0, 0)
	require.True(t, kv.IsConflict(err), "a marker is something")
	_, err = s.Put(ctx, "a.b", nil, marker, 0)
	require.NoError(t, err)
}

func TestTTLIsWholeSeconds(t *testing.T) {
	env := single(t)
	s := ensure(t, env.Connect("a"), memory()).Control
	for _, d := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, -time.Second} {
		_, err := s.Put(t.Context(), "a.b", nil, 0, d)
		require.ErrorIs(t, err, types.ErrInvalidConfig, d)
		_, err = s.Batch(t.Context(), []kv.Write{{Key: "a.b", TTL: d}})
		require.ErrorIs(t, err, types.ErrInvalidConfig, d)
	}
	_, err := s.Get(t.Context(), "a.b")
	require.ErrorIs(t, err, kv.ErrNotFound)
}

func TestExpiryLeavesAMarker(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		for _, tc := range []struct {
			s    *kv.Store
			ttl  time.Duration // of the message; 0: the bucket's age
			life time.Duration
		}{{b.Control, 2 * time.Second, 2 * time.Second}, {b.Heartbeat, 0, ttl}, {b.Heartbeat, 3 * time.Second, 3 * time.Second}} {
			rev, err := tc.s.Put(t.Context(), "a.b", []byte("x"), 0, tc.ttl)
			require.NoError(t, err)
			start := time.Now()
			var e kv.Entry
			env.WaitFor(time.Hour, "expiry", func() bool {
				e, err = tc.s.Get(t.Context(), "a.b")
				return err == nil && e.Absent()
			})
			took := time.Since(start)
			t.Logf("%s: ttl %v: marker after %v", tc.s.Bucket(), tc.ttl, took)
			require.GreaterOrEqual(t, took, tc.life)
			require.Less(t, took, tc.life+500*time.Millisecond)
			require.Equal(t, kv.Expire, e.Op)
			require.Greater(t, e.Revision, rev)

			// The marker lives long, and ends by itself without leaving another one.
			time.Sleep(kv.MarkerTTL(ttl) - time.Second)
			e, err = tc.s.Get(t.Context(), "a.b")
			require.NoError(t, err, tc.s.Bucket())
			require.Equal(t, kv.Expire, e.Op)
			time.Sleep(2 * time.Second)
			_, err = tc.s.Get(t.Context(), "a.b")
			require.ErrorIs(t, err, kv.ErrNotFound)
			require.Zero(t, stored(t, c, tc.s))
		}
	})
}

// stored is the number of messages in the bucket's stream.
func stored(t *testing.T, c *natstest.Client, s *kv.Store) uint64 {
	t.Helper()
	return stream(t, c, s).CachedInfo().State.Msgs
}

// stream asks again where nobody answers: a replicated stream may have no leader.
func stream(t *testing.T, c *natstest.Client, s *kv.Store) (stream jetstream.Stream) {
	t.Helper()
	var err error
	for range 12 {
		if stream, err = c.JS().Stream(within(t, 10*time.Second), s.Stream()); err == nil {
			return stream
		}
	}
	require.NoError(t, err)
	return nil
}

func TestDeleteMarkersEndByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		for _, s := range []*kv.Store{b.Control, b.Heartbeat} {
			rev, err := s.Put(t.Context(), "a.b", []byte("x"), 0, 0)
			require.NoError(t, err)
			_, err = s.Delete(t.Context(), "a.b", rev)
			require.NoError(t, err)
			_, err = s.Batch(t.Context(), []kv.Write{{Key: "a.c", Delete: true}})
			require.NoError(t, err)
			time.Sleep(kv.MarkerTTL(ttl) - time.Second)
			for _, key := range []string{"a.b", "a.c"} {
				e, err := s.Get(t.Context(), key)
				require.NoError(t, err, "%s: a delete marker must outlive the bucket's age", s.Bucket())
				require.Equal(t, kv.Delete, e.Op)
			}
			time.Sleep(2 * time.Second)
			require.Zero(t, stored(t, c, s))
		}
	})
}

func TestCreate(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		ctx, s := t.Context(), b.Control
		rev, err := s.Create(ctx, "over.nothing", []byte("1"), 0)
		require.NoError(t, err)
		_, err = s.Create(ctx, "over.nothing", []byte("2"), 0)
		require.True(t, kv.IsConflict(err))

		_, err = s.Delete(ctx, "over.nothing", rev)
		require.NoError(t, err)
		rev, err = s.Create(ctx, "over.nothing", []byte("3"), 2*time.Second)
		require.NoError(t, err, "over a delete marker")

		time.Sleep(3 * time.Second)
		e, err := s.Get(ctx, "over.nothing")
		require.NoError(t, err)
		require.Equal(t, kv.Expire, e.Op)
		again, err := s.Create(ctx, "over.nothing", []byte("4"), 0)
		require.NoError(t, err, "over an expiry marker")
		require.Greater(t, again, rev)
		e, err = s.Get(ctx, "over.nothing")
		require.NoError(t, err)
		require.Equal(t, "4", string(e.Value))
		time.Sleep(time.Hour)
		_, err = s.Get(ctx, "over.nothing")
		require.NoError(t, err, "the expired value's TTL is not inherited")
	})
}

func TestPutWithoutTTLDropsAnEarlierOne(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		rev, err := b.Control.Put(t.Context(), "a.b", nil, 0, 2*time.Second)
		require.NoError(t, err)
		_, err = b.Control.Put(t.Context(), "a.b", nil, rev, 0)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		e, err := b.Control.Get(t.Context(), "a.b")
		require.NoError(t, err)
		require.Equal(t, kv.Put, e.Op)
	})
}

func TestKeysStayBounded(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		// Incarnations come and go under ever new IDs for two hours; what is stored never exceeds what died within one marker's life.
		most := uint64(0)
		for i := range 240 {
			_, err := b.Heartbeat.Create(t.Context(), "heartbeat.w"+string(rune('a'+i%26))+string(rune('a'+i/26)), nil, 0)
			require.NoError(t, err)
			time.Sleep(30 * time.Second)
			most = max(most, stored(t, c, b.Heartbeat))
		}
		require.LessOrEqual(t, most, uint64(kv.MarkerTTL(ttl)/(30*time.Second)+2))
	})
}

func TestOutcomeUnknownWhenRepliesVanish(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		ctx := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		c.Gate().Hold(natstest.FromServer)
		_, err := b.Control.Put(ctx(), "a.put", []byte("x"), 0, 0)
		require.True(t, kv.IsUnknown(err), err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = b.Control.Create(ctx(), "a.create", []byte("x"), 0)
		require.True(t, kv.IsUnknown(err), err)
		_, err = b.Control.Batch(ctx(), []kv.Write{{Key: "a.one"}, {Key: "a.two"}})
		require.True(t, kv.IsUnknown(err), err)
		_, err = b.Control.Get(ctx(), "a.put")
		require.True(t, kv.IsTimeout(err), err)
		_, err = b.Control.List(ctx(), "a.*")
		require.ErrorIs(t, err, types.ErrPartialListing)
		require.True(t, kv.IsTimeout(err), err)
		c.Gate().Heal()
		env.WaitFor(time.Minute, "connection", func() bool { return c.Conn().IsConnected() })

		// They have landed all the same.
		l, err := b.Control.List(t.Context(), "a.*")
		require.NoError(t, err)
		require.Len(t, l, 4)

		c.Gate().Cut()
		_, err = b.Control.Put(ctx(), "a.cut", []byte("x"), 0, 0)
		require.True(t, kv.IsUnknown(err), err)
		c.Gate().Heal()
		c.Conn().Close()
		_, err = b.Control.Put(ctx(), "a.closed", []byte("x"), 0, 0)
		require.True(t, kv.IsUnknown(err), "a closed connection does not tell whether it had sent the write: %v", err)
	})
}

func TestStreamGone(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		before, err := b.Control.Identity(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, b.Control.Created())
		rev, err := b.Control.Put(t.Context(), "a.b", []byte("x"), 0, 0)
		require.NoError(t, err)
		require.NoError(t, c.JS().DeleteStream(t.Context(), b.Control.Stream()))

		ctx := within(t, 5*time.Second)
		gone := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, kv.ErrUnavailable)
			require.False(t, kv.IsUnknown(err), "nothing was written, for sure")
			require.False(t, kv.IsTimeout(err))
		}
		start := time.Now()
		_, err = b.Control.Put(ctx, "a.b", nil, rev, 0)
		gone(err)
		_, err = b.Control.Create(ctx, "a.b", nil, 0)
		gone(err)
		_, err = b.Control.Delete(ctx, "a.b", rev)
		gone(err)
		_, err = b.Control.Batch(ctx, []kv.Write{{Key: "a.b"}, {Key: "a.c"}})
		gone(err)
		_, err = b.Control.Get(ctx, "a.b")
		gone(err)
		_, err = b.Control.Identity(ctx)
		gone(err)
		_, err = b.Control.List(ctx, "a.*")
		gone(err)
		require.ErrorIs(t, err, types.ErrPartialListing)
		require.Less(t, time.Since(start), time.Second, "it must be noticed at once")

		// Recreated, the same Store works on it; only the identity tells.
		ensure(t, c, memory())
		_, err = b.Control.Create(ctx, "a.b", nil, 0)
		require.NoError(t, err)
		_, err = b.Control.Put(ctx, "a.b", nil, rev+100, 0)
		require.True(t, kv.IsConflict(err))
		after, err := b.Control.Identity(ctx)
		require.NoError(t, err)
		require.True(t, after.After(before))
	})
}

func TestRecreatedAsAnOrdinaryBucket(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	b := ensure(t, c, memory())
	require.NoError(t, c.JS().DeleteStream(t.Context(), b.Control.Stream()))
	_, err := c.JS().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: b.Control.Bucket()})
	require.NoError(t, err)
	_, err = b.Control.Put(t.Context(), "a.b", nil, 0, time.Second)
	require.ErrorIs(t, err, types.ErrForeignBucket)
	_, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.b"}})
	require.ErrorIs(t, err, types.ErrForeignBucket)
}

func TestPayloadTooLarge(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	b := ensure(t, c, memory())
	big := make([]byte, c.Conn().MaxPayload())
	_, err := b.Control.Put(t.Context(), "a.b", append(big, 0), 0, 0)
	require.ErrorIs(t, err, types.ErrPayloadTooLarge)
	require.False(t, kv.IsUnknown(err))
	for _, writes := range [][]kv.Write{
		{{Key: "a.b", Value: big}, {Key: "a.c"}}, // with its headers it is too large
		{{Key: "a.c"}, {Key: "a.b", Value: big}},
	} {
		_, err = b.Control.Batch(t.Context(), writes)
		require.ErrorIs(t, err, types.ErrPayloadTooLarge)
		require.ErrorContains(t, err, `"a.b"`)
		require.False(t, kv.IsUnknown(err))
	}
	require.Zero(t, stored(t, c, b.Control))

	// The stream may have a limit of its own.
	stream, err := c.JS().Stream(t.Context(), b.Control.Stream())
	require.NoError(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 1000
	_, err = c.JS().UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	_, err = b.Control.Put(t.Context(), "a.b", big[:1001], 0, 0)
	require.ErrorIs(t, err, types.ErrPayloadTooLarge)
	_, err = b.Control.Batch(t.Context(), []kv.Write{{Key: "a.c"}, {Key: "a.b", Value: big[:1001]}})
	require.ErrorIs(t, err, types.ErrPayloadTooLarge)
	require.Zero(t, stored(t, c, b.Control))
}

func TestContextEndedBeforeTheWrite(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	b := ensure(t, c, memory())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Control.Batch(ctx, []kv.Write{{Key: "a.b"}})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, kv.IsUnknown(err))
	_, err = b.Control.Put(ctx, "a.b", nil, 0, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, kv.IsUnknown(err))
	_, err = b.Control.List(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, stored(t, c, b.Control))
}
