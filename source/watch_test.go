package source

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// next waits for a signal.
func next(t testing.TB, ch <-chan struct{}, limit time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	select {
	case _, ok := <-ch:
		require.True(t, ok, "the channel is closed")
	case <-time.After(limit):
		t.Fatalf("no signal within %v", limit)
	}
	return time.Since(start)
}

// settle takes in all signals until there is none for a while.
func settle(ch <-chan struct{}, quiet time.Duration) {
	for {
		select {
		case <-ch:
		case <-time.After(quiet):
			return
		}
	}
}

func silent(t testing.TB, ch <-chan struct{}, d time.Duration) {
	t.Helper()
	select {
	case <-ch:
		t.Fatal("a signal without a change")
	case <-time.After(d):
	}
}

func TestWatchSignalsChanges(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		other := NewKV(env.Connect("b").JS(), "config", "partitions")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := s.Watch(ctx)
		require.NoError(t, err)
		next(t, ch, time.Millisecond) // at once
		settle(ch, time.Second)
		silent(t, ch, 10*time.Minute)
		for i := range 5 {
			require.NoError(t, other.Add(t.Context(), part(i)))
			require.Less(t, next(t, ch, time.Second), 50*time.Millisecond)
			silent(t, ch, time.Minute)
		}
		require.NoError(t, other.Remove(t.Context(), part(3)))
		next(t, ch, time.Second)
		bucket, err := c.JS().KeyValue(t.Context(), "config")
		require.NoError(t, err)
		_, err = bucket.Put(t.Context(), "another", []byte("x"))
		require.NoError(t, err)
		silent(t, ch, time.Minute)
		require.NoError(t, bucket.Delete(t.Context(), "partitions"))
		next(t, ch, time.Second)

		// Signals are not queued up for a slow reader.
		for i := range 20 {
			require.NoError(t, other.Add(t.Context(), part(i)))
		}
		time.Sleep(time.Second)
		next(t, ch, time.Millisecond)
		silent(t, ch, time.Minute)

		cancel()
		_, ok := <-ch
		require.False(t, ok)
		_, err = s.Watch(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestWatchOverCuts(t *testing.T) {
	for _, cut := range []time.Duration{time.Second, 8 * time.Second, 25 * time.Second} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			c, s := newKV(t, env)
			other := NewKV(env.Connect("b").JS(), "config", "partitions")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ch, err := s.Watch(ctx)
			require.NoError(t, err)
			settle(ch, time.Second)
			c.Gate().Cut()
			require.NoError(t, other.Add(t.Context(), part(1)))
			time.Sleep(cut)
			c.Gate().Heal()
			require.Less(t, next(t, ch, time.Minute), time.Second, "cut for %v", cut)
			settle(ch, time.Minute)
			require.NoError(t, other.Add(t.Context(), part(2)))
			require.Less(t, next(t, ch, time.Minute), 50*time.Millisecond, "the follower must be back")
			cancel()
			_, ok := <-ch
			require.False(t, ok)
		})
	}
}

func TestWatchOverServerRestart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("a")
		cfg := bucketConfig()
		cfg.Storage = jetstream.FileStorage
		_, err := c.JS().CreateKeyValue(t.Context(), cfg)
		require.NoError(t, err)
		s := NewKV(c.JS(), "config", "partitions")
		require.NoError(t, s.Set(t.Context(), part(1)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := s.Watch(ctx)
		require.NoError(t, err)
		settle(ch, time.Second)
		env.Restart()
		other := NewKV(env.Connect("b").JS(), "config", "partitions")
		require.NoError(t, other.Add(t.Context(), part(2)))
		require.Less(t, next(t, ch, time.Minute), 3*time.Second)
		requireList(t, s, part(1), part(2))
		cancel()
		for range ch {
		}
	})
}

// A follower of a bucket that is recreated hears nothing more, ever.
func TestWatchOverRecreatedBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		s.reconcile = 10 * time.Second
		require.NoError(t, s.Set(t.Context(), part(1), part(2)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := s.Watch(ctx)
		require.NoError(t, err)
		settle(ch, time.Second)
		require.NoError(t, c.JS().DeleteKeyValue(t.Context(), "config"))
		_, err = c.JS().CreateKeyValue(t.Context(), bucketConfig())
		require.NoError(t, err)
		bucket, err := c.JS().KeyValue(t.Context(), "config")
		require.NoError(t, err)
		for range 7 { // the list comes to another revision than before
			_, err = bucket.Put(t.Context(), "another", nil)
			require.NoError(t, err)
		}
		require.NoError(t, NewKV(env.Connect("b").JS(), "config", "partitions").Set(t.Context(), part(1)))
		require.LessOrEqual(t, next(t, ch, time.Minute), 10*time.Second+time.Millisecond)
		requireList(t, s, part(1))
		settle(ch, time.Minute)
		require.NoError(t, s.Add(t.Context(), part(3)))
		require.Less(t, next(t, ch, time.Minute), 50*time.Millisecond, "the follower must be back")
	})
}

// The list may come to the revision that it had before.
func TestWatchOverRecreatedBucketOfTheSameRevision(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		s.reconcile = 10 * time.Second
		require.NoError(t, s.Set(t.Context(), part(1), part(2)))
		ch, err := s.Watch(t.Context())
		require.NoError(t, err)
		settle(ch, time.Second)
		recreate(t, c)
		other := NewKV(env.Connect("b").JS(), "config", "partitions")
		require.NoError(t, other.Set(t.Context(), part(1)))
		next(t, ch, time.Minute)
		requireList(t, s, part(1))
		settle(ch, time.Minute)
		require.NoError(t, other.Add(t.Context(), part(3)))
		require.Less(t, next(t, ch, time.Minute), 50*time.Millisecond, "the follower must be back")
		silent(t, ch, 10*time.Minute)
	})
}

func TestWatchBeforeTheBucketExists(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("a")
		s := NewKV(c.JS(), "config", "partitions")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ch, err := s.Watch(ctx)
		require.NoError(t, err)
		settle(ch, time.Second)
		silent(t, ch, time.Hour)
		_, err = c.JS().CreateKeyValue(t.Context(), bucketConfig())
		require.NoError(t, err)
		require.NoError(t, s.Set(t.Context(), part(1)))
		require.Less(t, next(t, ch, time.Minute), 1100*time.Millisecond)
	})
}

func TestWatchOnAClosedConnection(t *testing.T) {
	env := single(t)
	c, s := newKV(t, env)
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := s.Watch(ctx)
	require.NoError(t, err)
	settle(ch, 50*time.Millisecond)
	c.Kill()
	cancel()
	env.WaitFor(5*time.Second, "the end", func() bool {
		select {
		case _, ok := <-ch:
			return !ok
		default:
			return false
		}
	})
}
