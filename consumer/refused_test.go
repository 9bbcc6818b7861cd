package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// A stream that deletes what its consumers have got cannot keep what is to be handed out again: it is not read, and said so.
func TestRetentionThatDeletesIsRefused(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				ctx := w.ctx(time.Hour)
				s, err := w.js.CreateStream(ctx, jetstream.StreamConfig{
					Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage, Retention: retention,
				})
				require.NoError(t, err)
				_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "others", AckPolicy: jetstream.AckExplicitPolicy})
				require.NoError(t, err)
				var told errorLog
				a := w.join(told.hooks(), WithFetchWait(time.Second, 0))
				w.waitOwned(10 * time.Second)
				w.publish(5)
				ms, err := a.Fetch(ctx, 10)
				require.NoError(t, err)
				require.Empty(t, ms)
				time.Sleep(10 * time.Second)
				require.ErrorIs(t, told.of(0), ErrInvalidConfig)
				require.ErrorContains(t, told.of(0), "retention")
				a.leave()
				info, err := s.Info(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 5*w.parts, info.State.Msgs)
			})
		})
	}
}

// A consumer of many partitions that cannot be made is told of too.
func TestSharedConsumerThatCannotBeMade(t *testing.T) {
	bubble(t, func(w *world) {
		ctx := w.ctx(time.Hour)
		s, err := w.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage, MaxConsumers: 1,
		})
		require.NoError(t, err)
		_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "others"})
		require.NoError(t, err)
		var told errorLog
		a := w.join(told.hooks())
		a.process()
		w.publish(1)
		time.Sleep(time.Minute)
		require.ErrorContains(t, told.of(whole), "maximum consumers limit reached")
		require.Less(t, told.count(), 20)
		require.NoError(t, s.DeleteConsumer(ctx, "others"))
		w.waitRead(5 * time.Second)
	}, withOptions(WithSharedAbove(0)))
}

// What is wrong with the bucket of offsets is said at once, as what it is.
func TestOffsetsThatCannotBe(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("r").JS()
		l := WithLayout(Mapped("S", "s", 7))
		for _, bucket := range []string{"a b", "a.b", "", strings.Repeat("b", 300)} {
			_, err := NewReader(js, "group", 7, l, WithOffsets(bucket, 1, jetstream.MemoryStorage))
			require.ErrorIs(t, err, ErrInvalidConfig, bucket)
			require.ErrorContains(t, err, "WithOffsets", bucket)
		}
		_, err := NewReader(js, "group", 7, l, WithOffsets("b", 6, jetstream.MemoryStorage))
		require.ErrorIs(t, err, ErrInvalidConfig)

		r, err := NewReader(js, "group", 7, l, WithOffsets("b", 3, jetstream.MemoryStorage), WithManagerOptions(parti.WithWaitForServer()))
		require.NoError(t, err)
		ctx := t.Context()
		began := time.Now()
		err = r.Start(ctx)
		require.ErrorIs(t, err, ErrInvalidConfig)
		require.NotErrorIs(t, err, parti.ErrNoServer)
		require.ErrorContains(t, err, "WithOffsets")
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, r.Close(ctx))
	})
}

// A key arrives as it is, or is refused.
func TestOddKeys(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		p, err := NewPublisher(w.js, w.layout)
		require.NoError(t, err)
		ctx := w.ctx(time.Hour)
		keys := []string{"", "a.b.c", "a b", "*", ">", "ключ", "k_é", "a:b", "\x7f", strings.Repeat("k", 5000), "Nats-Msg-Id: x"}
		for _, k := range keys {
			_, err := p.Publish(ctx, k, []byte(k))
			require.NoError(t, err, "%q", k)
		}
		for _, k := range []string{" a", "a\t", "a\nb", "a\r\nNats-Rollup: all", "\n"} {
			_, err := p.Publish(ctx, k, []byte(k))
			require.ErrorIs(t, err, ErrInvalidKey, "%q", k)
			_, err = p.PublishMsgAsync(k, &nats.Msg{})
			require.ErrorIs(t, err, ErrInvalidKey, "%q", k)
		}
		a := w.join()
		n := 0
		for m, err := range a.All(ctx) {
			require.NoError(t, err)
			require.Equal(t, string(m.Data), m.Headers.Get(HeaderKey))
			require.Equal(t, p.Partition(string(m.Data)), m.Partition)
			if n++; n == len(keys) {
				break
			}
		}
	})
}

// A key that makes a subject longer than a server reads is refused, before it costs the connection.
func TestKeyThatIsTooLong(t *testing.T) {
	for _, length := range []int{maxToken, maxToken + 1, 5000} {
		env := natstest.Single(t, natstest.WithTCP())
		nc, err := nats.Connect(env.Server.URL(), nats.NoReconnect(), nats.Timeout(time.Minute))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		l := Mapped("ORDERS", "orders", 8)
		require.NoError(t, l.CreateStreams(ctx, js, jetstream.StreamConfig{Storage: jetstream.MemoryStorage}))
		p, err := NewPublisher(js, l)
		require.NoError(t, err)
		_, err = p.Publish(ctx, strings.Repeat("k", length), nil)
		if length > maxToken {
			require.ErrorIs(t, err, ErrInvalidKey)
		} else {
			require.NoError(t, err)
		}
		require.True(t, nc.IsConnected())
		nc.Close()
	}
}

// The server stores what has a DEL in its subject, and finds it by no filter: nobody would ever read it.
func TestSubjectWithDEL(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		ctx := w.ctx(time.Minute)
		p, err := NewPublisher(w.js, w.layout)
		require.NoError(t, err)
		_, err = p.Publish(ctx, "a\x7fb", nil)
		require.ErrorIs(t, err, ErrInvalidKey)
		_, err = NewPublisher(w.js, Mapped("S", "a\x7f", 8))
		require.ErrorIs(t, err, ErrInvalidConfig)
		require.ErrorContains(t, err, "DEL")

		_, err = w.js.Publish(ctx, "orders.a\x7fb", nil) // what is refused for
		require.NoError(t, err)
		lag := uint64(0)
		a := w.join()
		for partition := range w.parts {
			n, err := a.Lag(ctx, partition)
			require.NoError(t, err)
			lag += n
		}
		require.Zero(t, lag, "a server that finds it needs no refusal")
	}, withLayout(Mapped("ORDERS", "orders", 8)))
}
