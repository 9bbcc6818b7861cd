package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// A dead-letter subject that a stream of the layout takes is refused; the reason of any refusal is said.
func TestDeadLetterSubjectIsRefused(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("r").JS()
		for _, c := range []struct {
			layout  Layout
			subject string
			fault   string // empty: accepted
		}{
			{Mapped("ORDERS", "orders", 4), "orders.dead", "the layout's own stream ORDERS takes"},
			{SubjectPerPartition("ORDERS", "orders", 4), "orders.0", "the layout's own stream ORDERS takes"},
			{SpreadOver("ORDERS", "orders", 100, 0), "orders.99", "the layout's own stream ORDERS-1 takes"},
			{StreamPerPartition("ORDERS", "orders", 4), "orders.3", "the layout's own stream ORDERS-3 takes"},
			{SpreadOver("ORDERS", "orders", 100, 0), "orders.dead", ""},
			{Mapped("ORDERS", "orders", 4), "orders", ""},
			{Mapped("ORDERS", "orders", 4), "dead.orders", ""},
			{Mapped("ORDERS", "orders", 4), "dead.*", `"dead.*" has a wildcard`},
			{Mapped("ORDERS", "orders", 4), "", `"" is empty`},
			{Mapped("ORDERS", "orders", 4), "dead orders", "has white space"},
		} {
			_, err := NewReader(js, "group", c.layout.Partitions(), WithLayout(c.layout), WithDeadLetter(c.subject))
			if c.fault == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, ErrInvalidConfig)
			require.ErrorContains(t, err, c.fault)
			require.ErrorContains(t, err, `WithDeadLetter("dead.orders")`)
		}
	})
}

// With a resolver only the dead letter itself shows that the group reads its own: it stops its partition, and is not sent again.
func TestDeadLetterThatComesBackStopsItsPartition(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("r").JS()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
		for _, data := range []string{"good", "bad", "good"} {
			_, err := js.Publish(ctx, "orders.new", []byte(data))
			require.NoError(t, err)
		}
		r, err := NewReader(js, "group", 1, quick(), WithResolver(func(int) (string, string) { return "ORDERS", "orders.>" }), WithDeadLetter("orders.dead"))
		require.NoError(t, err)
		var bad atomic.Int64
		processed := make(chan error, 1)
		go func() {
			processed <- r.Process(ctx, func(_ context.Context, m Message) error {
				if string(m.Data) == "bad" {
					bad.Add(1)
					return Permanent(errBad)
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, bad.Load(), "and as the dead letter that came back")
		info, err := stream.Info(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 4, info.State.Msgs)
		stopped := r.Stats().Partitions[0].Stopped
		require.ErrorIs(t, stopped, ErrPoison)
		require.ErrorIs(t, stopped, errBad)
		require.ErrorContains(t, stopped, "it is a dead letter of this group, which reads the subject orders.dead itself")
		require.NoError(t, r.Seek(ctx, 0, AtSequence(5)), "passes it over")
		cancel()
		require.ErrorIs(t, <-processed, context.Canceled)
		require.NoError(t, r.Close(context.Background()))
	})
}

// A dead letter that somebody publishes again to where it came from is tried again, and becomes a dead letter again.
func TestDeadLetterPublishedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.ledger.unjudged = true
		w.create()
		ctx := w.ctx(time.Hour)
		dead, err := w.js.CreateStream(ctx, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
		w.publish(1, 2)
		a := w.join(WithDeadLetter("dead.orders"))
		a.processWith(func(context.Context, Message) error { return Permanent(errBad) })
		for n := range 3 {
			time.Sleep(10 * time.Second)
			info, err := dead.Info(ctx)
			require.NoError(t, err)
			require.EqualValues(t, n+1, info.State.Msgs)
			require.NoError(t, a.Stats().Partitions[2].Stopped)
			m, err := dead.GetMsg(ctx, info.State.LastSeq)
			require.NoError(t, err)
			m.Header.Del(jetstream.MsgIDHeader)
			_, err = w.js.PublishMsg(ctx, &nats.Msg{Subject: m.Header.Get(HeaderSubject), Data: m.Data, Header: m.Header})
			require.NoError(t, err)
		}
	})
}
