package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// sink is a bucket as fenced by one client, and as everybody else sees it.
type sink struct {
	*fence.KV
	plain  jetstream.KeyValue
	client *natstest.Client
}

func newSink(t *testing.T, c *natstest.Client) sink {
	t.Helper()
	s, err := makeSink(t.Context(), c, jetstream.KeyValueConfig{})
	require.NoError(t, err)
	return s
}

func makeSink(ctx context.Context, c *natstest.Client, cfg jetstream.KeyValueConfig) (sink, error) {
	cfg.Bucket, cfg.Storage, cfg.History = "sink", jetstream.MemoryStorage, 64
	plain, err := c.JS().CreateOrUpdateKeyValue(ctx, cfg)
	if err != nil {
		return sink{}, err
	}
	kv, err := fence.OpenKV(ctx, c.JS(), cfg.Bucket)
	return sink{kv, plain, c}, err
}

func TestKVRefusesLowerEpochs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, ctx := newSink(t, env.Connect("a")), t.Context()
		_, err := s.Put(ctx, "eu.1", []byte("one"), 5)
		require.NoError(t, err)
		rev, err := s.Put(ctx, "eu.1", []byte("two"), 5)
		require.NoError(t, err, "an equal epoch is the same run")
		_, err = s.Put(ctx, "eu.1", []byte("late"), 4)
		require.ErrorIs(t, err, fence.ErrStale)
		var stale *fence.StaleError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, fence.StaleError{Subject: "eu.1", Epoch: 4, Highest: 5}, *stale)

		e, err := s.Get(ctx, "eu.1")
		require.NoError(t, err)
		require.Equal(t, "two", string(e.Value))
		require.EqualValues(t, 5, e.Epoch)
		require.Equal(t, rev, e.Revision)
		plain, err := s.plain.Get(ctx, "eu.1")
		require.NoError(t, err)
		require.Equal(t, "two", string(plain.Value()), "plain readers see plain values")

		_, err = s.Put(ctx, "eu.2", []byte("another"), 1)
		require.NoError(t, err, "each key has its own epoch")
	})
}

func TestKVUpdate(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, ctx := newSink(t, env.Connect("a")), t.Context()
		calls := 0
		_, err := s.Update(ctx, "p", 2, func(e fence.Entry) ([]byte, error) {
			if calls++; calls == 1 {
				require.False(t, e.Exists)
				_, err := s.plain.Put(ctx, "p", []byte("x"))
				require.NoError(t, err)
			}
			return append(e.Value, 'y'), nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, calls)
		e, err := s.Get(ctx, "p")
		require.NoError(t, err)
		require.Equal(t, "xy", string(e.Value))
		fault := errors.New("fault")
		_, err = s.Update(ctx, "p", 2, func(fence.Entry) ([]byte, error) { return nil, fault })
		require.ErrorIs(t, err, fault)
		_, err = s.Update(ctx, "p", 1, func(fence.Entry) ([]byte, error) { t.Error("called"); return nil, nil })
		require.ErrorIs(t, err, fence.ErrStale)
	})
}

func TestKVClaim(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, ctx := newSink(t, env.Connect("a")), t.Context()
		e, err := s.Claim(ctx, "p", 3)
		require.NoError(t, err)
		require.False(t, e.Exists)
		_, err = s.Get(ctx, "p")
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound)
		_, err = s.Put(ctx, "p", []byte("late"), 2)
		require.ErrorIs(t, err, fence.ErrStale, "a claimed key is fenced before it has a value")
		_, err = s.Put(ctx, "p", []byte("v"), 3)
		require.NoError(t, err)
		e, err = s.Claim(ctx, "p", 7)
		require.NoError(t, err)
		require.Equal(t, "v", string(e.Value))
		require.EqualValues(t, 7, e.Epoch)
		_, err = s.Claim(ctx, "p", 6)
		require.ErrorIs(t, err, fence.ErrStale)
	})
}

func TestKVDeleteRemembersTheEpoch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, ctx := newSink(t, env.Connect("a")), t.Context()
		_, err := s.Put(ctx, "p", []byte("v"), 5)
		require.NoError(t, err)
		_, err = s.Delete(ctx, "p", 4)
		require.ErrorIs(t, err, fence.ErrStale)
		_, err = s.Delete(ctx, "p", 6)
		require.NoError(t, err)
		e, err := s.Get(ctx, "p")
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound)
		require.EqualValues(t, 6, e.Epoch)
		_, err = s.plain.Get(ctx, "p")
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound, "plain readers see it deleted")
		_, err = s.Put(ctx, "p", []byte("late"), 5)
		require.ErrorIs(t, err, fence.ErrStale)
		_, err = s.Put(ctx, "p", []byte("new"), 6)
		require.NoError(t, err)
	})
}

func TestKVRefusesWhatCannotWork(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, ctx := env.Connect("a"), t.Context()
		s := newSink(t, c)
		_, err := s.Put(ctx, "p", nil, 0)
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		for _, key := range []string{"", ".a", "a.", "a..b", "a b", "a.*", "ä"} {
			_, err = s.Put(ctx, key, nil, 1)
			require.ErrorIs(t, err, jetstream.ErrInvalidKey, key)
			_, err = s.Get(ctx, key)
			require.ErrorIs(t, err, jetstream.ErrInvalidKey, key)
		}
		_, err = s.Put(ctx, "p", bytes.Repeat([]byte{'x'}, 2<<20), 1)
		require.ErrorIs(t, err, types.ErrPayloadTooLarge)

		_, err = fence.OpenKV(ctx, nil, "sink")
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		_, err = fence.OpenKV(ctx, c.JS(), "missing")
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
		_, err = c.JS().CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "ttl", TTL: time.Hour, Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
		_, err = fence.OpenKV(ctx, c.JS(), "ttl")
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		require.ErrorContains(t, err, "TTL is 1h")
	})
}

func TestKVRefusesADamagedEpoch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, ctx := newSink(t, env.Connect("a")), t.Context()
		_, err := s.plain.Put(ctx, "plain", nil)
		require.NoError(t, err)
		_, err = s.Put(ctx, "plain", nil, 1)
		require.NoError(t, err, "a value from before the fence counts as epoch 0")
		damaged := newMsg("$KV.sink.p", "not a number")
		_, err = s.client.JS().PublishMsg(ctx, damaged)
		require.NoError(t, err)
		_, err = s.Put(ctx, "p", nil, 1)
		require.ErrorIs(t, err, types.ErrMalformed)
	})
}

// history returns the epochs of a key's stored values and deletes, oldest first.
func history(t *testing.T, s sink, key string) (epochs []int64, values []string) {
	t.Helper()
	msgs, err := messages(within(t, 10*time.Second), s.client.JS())
	for try := 0; err != nil && try < 10; try++ {
		t.Log("read again after:", err)
		time.Sleep(200 * time.Millisecond)
		msgs, err = messages(within(t, 10*time.Second), s.client.JS())
	}
	require.NoError(t, err)
	for _, m := range msgs {
		if m.Subject == "$KV.sink."+key {
			epochs, values = append(epochs, epochOf(t, m)), append(values, string(m.Data))
		}
	}
	return epochs, values
}

// messages returns all messages of the bucket, or an error if they are read from a replica that lags behind.
func messages(ctx context.Context, js jetstream.JetStream) (msgs []*jetstream.RawStreamMsg, err error) {
	stream, err := js.Stream(ctx, "KV_sink")
	if err != nil {
		return nil, err
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err == nil {
			msgs = append(msgs, m)
		} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, err
		}
	}
	if len(msgs) != int(state.Msgs) {
		return nil, fmt.Errorf("%d of %d messages", len(msgs), state.Msgs)
	}
	return msgs, nil
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
