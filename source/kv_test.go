package source

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
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

func TestKVArguments(t *testing.T) {
	env := single(t)
	js := env.Connect("a").JS()
	require.NoError(t, NewKV(js, "config", "a.b-c/d=1", WithReconcile(time.Second)).Validate())
	for want, s := range map[string]*KVSource{
		"js is nil":       NewKV(nil, "b", "k"),
		`bucket "a.b"`:    NewKV(js, "a.b", "k"),
		`key ""`:          NewKV(js, "b", ""),
		`key "a..b"`:      NewKV(js, "b", "a..b"),
		`key "a.*"`:       NewKV(js, "b", "a.*"),
		"at least 100ms":  NewKV(js, "b", "k", WithReconcile(0)),
		"logger is nil":   NewKV(js, "b", "k", WithLogger(nil)),
		"letters, digits": NewKV(js, "", "k"),
		"option is nil":   NewKV(js, "b", "k", nil),
	} {
		require.ErrorIs(t, s.Validate(), types.ErrInvalidConfig)
		require.ErrorContains(t, s.Validate(), want)
		_, err := s.ListPartitions(t.Context())
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		_, err = s.Watch(t.Context())
		require.ErrorIs(t, err, types.ErrInvalidConfig)
		require.ErrorIs(t, s.Add(t.Context(), part(1)), types.ErrInvalidConfig)
	}
}

func TestKVWithoutBucket(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	s := NewKV(c.JS(), "config", "partitions")
	_, err := s.ListPartitions(t.Context())
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorContains(t, err, `bucket "config" (it must exist)`)
	require.ErrorIs(t, s.Add(t.Context(), part(1)), kv.ErrUnavailable)
	_, err = c.JS().CreateKeyValue(t.Context(), bucketConfig())
	require.NoError(t, err)
	requireList(t, s)
}

func TestKVLifeOfAList(t *testing.T) {
	env := single(t)
	c, s := newKV(t, env)
	ctx := t.Context()
	requireList(t, s)
	snap, err := s.Snapshot(ctx)
	require.NoError(t, err)
	require.Zero(t, snap)
	require.NoError(t, s.Remove(ctx, part(1)), "nothing to remove")
	require.NoError(t, s.Add(ctx))
	bucket, err := c.JS().KeyValue(ctx, "config")
	require.NoError(t, err)
	_, err = bucket.Get(ctx, "partitions")
	require.ErrorIs(t, err, jetstream.ErrKeyNotFound, "nothing changed, nothing is written")

	require.NoError(t, s.Add(ctx, part(2), part(1)))
	requireList(t, s, part(1), part(2))
	first, err := s.Snapshot(ctx)
	require.NoError(t, err)
	require.NotZero(t, first.Revision)

	heavy := part(2)
	heavy.Weight, heavy.Label = 500, "gpu"
	require.NoError(t, s.Add(ctx, heavy, part(3)))
	requireList(t, s, part(1), heavy, part(3))
	second, err := s.Snapshot(ctx)
	require.NoError(t, err)
	require.Greater(t, second.Revision, first.Revision)

	require.NoError(t, s.Add(ctx, heavy))
	same, err := s.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, second.Revision, same.Revision)

	require.NoError(t, s.Remove(ctx, part(2), part(9)))
	requireList(t, s, part(1), part(3))
	mine := errors.New("mine")
	require.Equal(t, mine, s.Modify(ctx, func([]types.Partition) ([]types.Partition, error) { return nil, mine }))
	require.NoError(t, s.Modify(ctx, func(ps []types.Partition) ([]types.Partition, error) {
		ps[0].Keys[0] = "x" // its own copy
		return ps, nil
	}))
	requireList(t, NewKV(c.JS(), "config", "partitions"), part(3), types.NewPartition("x", part(1).Keys[1]))
	require.NoError(t, s.Set(ctx))
	requireList(t, s)

	// What a caller does to a result has no effect.
	require.NoError(t, s.Set(ctx, part(1), part(2)))
	got, err := s.ListPartitions(ctx)
	require.NoError(t, err)
	got[0].Keys[0], got[1] = "x", part(7)
	requireList(t, s, part(1), part(2))

	require.NoError(t, bucket.Delete(ctx, "partitions"))
	requireList(t, s)
	for uint64(time.Now().UnixMilli()) <= second.Revision+10 { // without a list to go on from, the clock is what makes revisions grow
		runtime.Gosched()
	}
	require.NoError(t, s.Add(ctx, part(4)), "over a delete marker")
	requireList(t, s, part(4))
	last, err := s.Snapshot(ctx)
	require.NoError(t, err)
	require.Greater(t, last.Revision, second.Revision)
}

func TestKVRefusesFaultyLists(t *testing.T) {
	env := single(t)
	_, s := newKV(t, env)
	ctx := t.Context()
	require.NoError(t, s.Set(ctx, part(1), part(2)))
	bad := types.NewPartition("a.b")
	require.ErrorIs(t, s.Add(ctx, part(3), bad), types.ErrInvalidPartition)
	require.ErrorIs(t, s.Add(ctx, part(3), part(3)), types.ErrDuplicatePartition)
	require.ErrorIs(t, s.Set(ctx, bad), types.ErrInvalidPartition)
	require.ErrorIs(t, s.Modify(ctx, func(ps []types.Partition) ([]types.Partition, error) { return append(ps, ps[0]), nil }), types.ErrDuplicatePartition)
	requireList(t, s, part(1), part(2))
}

func TestKVCorruptValue(t *testing.T) {
	env := single(t)
	c, s := newKV(t, env)
	bucket, err := c.JS().KeyValue(t.Context(), "config")
	require.NoError(t, err)
	for _, value := range []string{"", "hello", "[]", string(pack(t, "[]")), string(pack(t, `{"schema":9}`))} {
		_, err := bucket.Put(t.Context(), "partitions", []byte(value))
		require.NoError(t, err)
		got, err := s.ListPartitions(t.Context())
		want := types.ErrMalformed
		if strings.Contains(value, "9") || errors.Is(err, types.ErrUnsupportedSchema) {
			want = types.ErrUnsupportedSchema
		}
		require.ErrorIs(t, err, want, "%q", value)
		require.Nil(t, got)
		err = s.Add(t.Context(), part(1))
		require.ErrorIs(t, err, want, "what cannot be read is not written over")
		require.Equal(t, want == types.ErrMalformed, strings.Contains(err.Error(), "Set puts a list in its place"), err)
	}
	require.ErrorIs(t, s.Set(t.Context(), part(1)), types.ErrUnsupportedSchema, "nor is a newer release's list, even by Set")
	_, err = bucket.Put(t.Context(), "partitions", []byte("hello"))
	require.NoError(t, err)
	require.NoError(t, s.Set(t.Context(), part(1)))
	requireList(t, s, part(1))
}

func TestKVRevisionSurvivesRecreation(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		for i := range 50 {
			require.NoError(t, s.Add(t.Context(), part(i)))
		}
		before, err := s.Snapshot(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.JS().DeleteKeyValue(t.Context(), "config"))
		_, err = s.ListPartitions(t.Context())
		require.ErrorIs(t, err, kv.ErrUnavailable)
		_, err = c.JS().CreateKeyValue(t.Context(), bucketConfig())
		require.NoError(t, err)
		time.Sleep(time.Second) // more than a millisecond for each of the earlier changes
		require.NoError(t, s.Add(t.Context(), part(1)))
		after, err := s.Snapshot(t.Context())
		require.NoError(t, err)
		require.Greater(t, after.Revision, before.Revision)
	})
}

func TestKVConcurrentWriters(t *testing.T) {
	env := single(t)
	c, s := newKV(t, env)
	const writers, each = 6, 5
	var wg sync.WaitGroup
	for w := range writers {
		mine := NewKV(c.JS(), "config", "partitions")
		wg.Go(func() {
			for i := range each {
				if err := mine.Add(within(t, time.Minute), part(w*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	requireList(t, s, parts(writers*each)...)
}

// A write whose answer is lost takes effect exactly once, whether it landed or not, and whether others write meanwhile.
func TestKVUnknownOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		hold   natstest.Direction
		lose   bool
		others int // changes by others while the answer is out
		want   int // how often the change took effect; -1 if unknown
	}{
		"landed":                     {natstest.FromServer, false, 0, 1},
		"landed, connection lost":    {natstest.FromServer, true, 0, 1},
		"landed, others built on it": {natstest.FromServer, true, 5, 1},
		"landed, too many others":    {natstest.FromServer, true, keepNonces + 1, -1},
		"lost":                       {natstest.Both, true, 0, 1},
		"lost, others wrote":         {natstest.Both, true, 5, 1},
		"delayed, others wrote":      {natstest.Both, false, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				c, s := newKV(t, env)
				other := NewKV(env.Connect("b").JS(), "config", "partitions")
				require.NoError(t, other.Set(t.Context(), types.Partition{Keys: []string{"n"}, Weight: 1}))
				requireList(t, s, types.Partition{Keys: []string{"n"}, Weight: 1})

				done := make(chan error, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				held := false
				go func() {
					done <- s.Modify(ctx, func(ps []types.Partition) ([]types.Partition, error) {
						for i := range ps {
							if ps[i].Keys[0] == "n" {
								ps[i].Weight++ // not idempotent
							}
						}
						if !held { // the read is over, the write comes
							held = true
							if tc.lose {
								c.Gate().Lose(tc.hold)
							} else {
								c.Gate().Hold(tc.hold)
							}
						}
						return ps, nil
					})
				}()
				time.Sleep(time.Second)
				for i := range tc.others {
					require.NoError(t, other.Add(t.Context(), part(i)))
				}
				time.Sleep(4 * time.Second)
				c.Gate().Heal()
				err := <-done
				if tc.want < 0 {
					require.ErrorIs(t, err, types.ErrOutcomeUnknown)
					return
				}
				require.NoError(t, err)
				got, err := other.ListPartitions(t.Context())
				require.NoError(t, err)
				require.Len(t, got, 1+tc.others)
				require.Equal(t, int64(1+tc.want), got[0].Weight)
			})
		})
	}
}

func TestKVUnknownOutcomeWhenContextEnds(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c, s := newKV(t, env)
		require.NoError(t, s.Set(t.Context(), part(1)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := s.Modify(ctx, func(ps []types.Partition) ([]types.Partition, error) {
			c.Gate().Hold(natstest.FromServer)
			return append(ps, part(2)), nil
		})
		require.ErrorIs(t, err, types.ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.Gate().Heal()
	})
}

func TestKVBucketWithSmallValues(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	cfg := bucketConfig()
	cfg.MaxValueSize = 1000
	_, err := c.JS().CreateKeyValue(t.Context(), cfg)
	require.NoError(t, err)
	s := NewKV(c.JS(), "config", "partitions")
	require.NoError(t, s.Set(t.Context(), part(1)))
	require.ErrorIs(t, s.Set(t.Context(), noisy(1, 100)...), types.ErrPayloadTooLarge)
	require.ErrorIs(t, s.Set(t.Context(), noisy(1, 4_000)...), types.ErrPayloadTooLarge)
	requireList(t, s, part(1))
}

func TestKVWithoutPermission(t *testing.T) {
	natstest.Long(t)
	env := single(t, natstest.WithServerOptions(func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "p"}, {Username: "reader", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$KV.>"}},
		}}}
	}))
	admin := env.Connect("a", nats.UserInfo("admin", "p"))
	_, err := admin.JS().CreateKeyValue(t.Context(), bucketConfig())
	require.NoError(t, err)
	require.NoError(t, NewKV(admin.JS(), "config", "partitions").Add(t.Context(), part(1)))
	s := NewKV(env.Connect("r", nats.UserInfo("reader", "p")).JS(), "config", "partitions")
	requireList(t, s, part(1))
	err = s.Add(t.Context(), part(2))
	require.ErrorIs(t, err, types.ErrPermission)
	require.ErrorContains(t, err, `"$KV.config.partitions"`)
}

func TestKVOnAnyBucket(t *testing.T) {
	natstest.Long(t)
	env := single(t)
	c := env.Connect("a")
	for i, cfg := range []jetstream.KeyValueConfig{
		{Bucket: "b0", History: 10, Storage: jetstream.FileStorage},
		{Bucket: "b1", TTL: time.Hour, LimitMarkerTTL: time.Minute},
		{Bucket: "b2", Compression: true, MaxBytes: 10 << 20},
	} {
		_, err := c.JS().CreateKeyValue(t.Context(), cfg)
		require.NoError(t, err)
		s := NewKV(c.JS(), cfg.Bucket, "deep.er.key")
		require.NoError(t, s.Set(t.Context(), noisy(uint64(i), 4_000)...))
		require.NoError(t, s.Set(t.Context(), part(1)))
		requireList(t, s, part(1))
	}
}
