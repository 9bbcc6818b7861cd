package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// many is a stream with more partitions than have consumers of their own.
func many(n int) worldOption {
	return func(w *world) {
		withLayout(SubjectPerPartition("ORDERS", "orders", n))(w)
		w.opts = append(w.opts, WithSharedAbove(4))
	}
}

func consumers(w *world) (names []string) {
	s, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
	require.NoError(w.t, err)
	for name := range s.ConsumerNames(w.ctx(time.Minute)).Name() {
		names = append(names, name)
	}
	return names
}

func TestSharedReading(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(30)
		a, b := w.join(), w.join()
		a.process()
		b.process()
		w.waitRead(10 * time.Second)
		require.Len(t, consumers(w), 2)
		c := w.join()
		c.process()
		w.publish(10)
		w.waitRead(10 * time.Second)
		time.Sleep(10 * time.Second)
		require.NotEmpty(t, c.Assigned())
		a.leave()
		w.publish(10)
		w.waitRead(5 * time.Second)
		require.Zero(t, w.ledger.again())
		c.kill()
		w.publish(10)
		w.waitRead(10 * time.Second)
	}, many(40))
}

func TestSharedReadingStuckPartition(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(300)
		a := w.join(WithBuffer(20, 1<<20))
		release := make(chan struct{})
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 5 {
				<-release
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		require.Equal(t, 19*300, w.ledger.count())
		require.LessOrEqual(t, a.Stats().Partitions[5].Buffered, 20)
		w.publish(50)
		time.Sleep(5 * time.Second)
		require.Equal(t, 19*350, w.ledger.count())
		close(release)
		w.waitRead(10 * time.Second)
		w.publish(10)
		w.waitRead(time.Second)
		time.Sleep(time.Second)
		require.Len(t, consumers(w), 1, "it reads with the others again")
	}, many(20))
}

func TestSharedReadingFaults(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a, b := w.join(), w.join()
		a.process()
		b.process()
		w.publish(20)
		w.waitRead(10 * time.Second)
		for range 3 {
			s, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
			require.NoError(t, err)
			for _, name := range consumers(w) {
				require.NoError(t, s.DeleteConsumer(w.ctx(time.Minute), name))
			}
			w.publish(5)
			w.waitRead(2 * time.Second)
			a.client.Gate().Cut()
			w.publish(5)
			time.Sleep(2 * time.Second)
			a.client.Gate().Heal()
			w.waitRead(5 * time.Second)
			w.restart()
			w.publish(5)
			w.waitRead(10 * time.Second)
			time.Sleep(2 * time.Second)
		}
		require.Zero(t, w.ledger.again())
	}, many(20), withFiles())
}

func TestSharedReadingSlowerThanTheStream(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(400)
		a := w.join(WithBuffer(16, 1<<20), WithConcurrency(3))
		a.processWith(func(context.Context, Message) error { time.Sleep(100 * time.Microsecond); return nil })
		w.waitRead(time.Minute)
		require.Zero(t, w.ledger.again())
	}, many(20))
}

// Half a buffer of one message for a single member is still one message.
func TestSharedReadingOfOneWithTheSmallestBuffer(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(50)
		a := w.join()
		a.process()
		w.waitRead(10 * time.Second)
		require.Zero(t, w.ledger.again())
	}, withLayout(SubjectPerPartition("ORDERS", "orders", 1)), withOptions(WithSharedAbove(0), WithBuffer(1, 1<<20)))
}
