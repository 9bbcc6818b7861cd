package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// What is malformed is refused before anything starts, by the name the caller gave it.
func TestMalformedInputIsRefused(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("r").JS()
		at := func(stream, subject string) Option {
			return WithResolver(func(int) (string, string) { return stream, subject })
		}
		for text, opt := range map[string]Option{
			"give it layout.Partitions()":               WithLayout(Mapped("S", "s", 8)),
			`the layout's prefix "a..b" has an empty`:   WithLayout(Mapped("S", "a..b", 7)),
			`the layout's prefix "a.*" has a wildcard`:  WithLayout(SpreadOver("S", "a.*", 7, 0)),
			`the layout's stream "S s" may not have`:    WithLayout(Mapped("S s", "s", 7)),
			`the layout has 0 partitions`:               WithLayout(Mapped("S", "s", 0)),
			`partition 0 the stream "S.s", which may`:   at("S.s", "s"),
			`partition 0 the stream "", which is empty`: at("", "s"),
			`the subject "", which is empty`:            at("S", ""),
			`the subject "s.>.t", which has '>'`:        at("S", "s.>.t"),
			`the subject "s.a*", which has the token`:   at("S", "s.a*"),
			`the subject "s t", which has white space`:  at("S", "s t"),
			"WithDeadLetter":                            WithDeadLetter("dead.*"),
		} {
			_, err := NewReader(js, "group", 7, WithLayout(Mapped("S", "s", 7)), opt)
			require.ErrorIs(t, err, ErrInvalidConfig, text)
			require.ErrorContains(t, err, text)
		}
		_, err := NewPublisher(js, Mapped("S", "a..b", 8))
		require.ErrorIs(t, err, ErrInvalidConfig)

		// Everything at once, the Manager's options included.
		_, err = NewReader(js, "no group", 7, WithLayout(Mapped("S s", "s", 8)), WithBuffer(0, 0), WithLagAware(LagAware{MovesPerMinute: 2}),
			WithManagerOptions(parti.WithStartTimeout(-1)))
		require.ErrorIs(t, err, ErrInvalidConfig)
		for _, text := range []string{`group "no group"`, "the layout's stream", "the layout has 8", "WithBuffer", "WithLagAware", "StartTimeout"} {
			require.ErrorContains(t, err, text)
		}
		require.NotContains(t, err.Error(), "Namespace")
		require.NotContains(t, err.Error(), "resolver")

		_, err = NewReader(js, "group", 1, at("S", "s.>"))
		require.NoError(t, err)
	})
}

// A publish that no stream takes says what to do.
func TestPublishWithoutStream(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		p, err := NewPublisher(env.Connect("p").JS(), Mapped("ORDERS", "orders", 8))
		require.NoError(t, err)
		_, err = p.Publish(context.Background(), "k", nil)
		require.ErrorIs(t, err, jetstream.ErrNoStreamResponse)
		require.ErrorContains(t, err, "no stream takes the subject orders.k: call Layout.CreateStreams first")
	})
}

// A message is acknowledged where it was handed out.
func TestAckOfAnotherReadersMessage(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Minute)
		ms, err := a.Fetch(ctx, 40)
		require.NoError(t, err)
		b := w.make()
		require.ErrorIs(t, b.Ack(ctx, ms...), ErrNotAssigned, "never started")
		require.ErrorIs(t, b.AckLater(ms...), ErrNotAssigned)
		require.NoError(t, b.Start(ctx))
		require.ErrorIs(t, b.Ack(ctx, ms[0]), ErrNotAssigned)
		for _, p := range a.Stats().Partitions {
			require.Zero(t, p.Acknowledged)
		}
	})
}
