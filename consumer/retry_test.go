package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// tries are the times of the attempts at the same message, by partition.
type tries struct {
	mu sync.Mutex
	at map[int][]time.Time
}

func (a *tries) note(p int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = map[int][]time.Time{}
	}
	a.at[p] = append(a.at[p], time.Now())
}

// requireSpacing requires waits between a half and the whole of a step that doubles from first to limit, and that they differ.
func (a *tries) requireSpacing(t *testing.T, partitions, attempts int, first, limit time.Duration) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Len(t, a.at, partitions)
	different := map[time.Duration]bool{}
	for p, at := range a.at {
		require.GreaterOrEqual(t, len(at), attempts, "partition %d", p)
		step := first
		for i := 1; i < attempts; i++ {
			wait := at[i].Sub(at[i-1])
			require.GreaterOrEqual(t, wait, step/2, "partition %d, wait %d", p, i)
			require.LessOrEqual(t, wait, step+step/10, "partition %d, wait %d", p, i)
			different[wait.Truncate(time.Millisecond)] = true
			step = min(2*step, limit)
		}
	}
	require.Greater(t, len(different), attempts, "partitions that failed together do not come back together")
}

// Attempts are spaced out, and those of different partitions come apart.
func TestRetriesAreSpacedOut(t *testing.T) {
	const first, limit = 2 * time.Second, 10 * time.Second
	bubble(t, func(w *world) {
		w.create()
		w.publish(1)
		var a tries
		m := w.join(WithRetry(Retry{Attempts: 6, First: first, Limit: limit}))
		m.processWith(func(_ context.Context, msg Message) error {
			a.note(msg.Partition)
			return errBad
		})
		time.Sleep(2 * time.Minute)
		require.Zero(t, w.ledger.count())
		for _, at := range a.at {
			require.Len(t, at, 6)
		}
		a.requireSpacing(t, 8, 6, first, limit)
	})
}

// So are the attempts to publish dead letters, by waits of their own: the handler's were over.
func TestDeadLettersAreSpacedOut(t *testing.T) {
	const first, limit = 2 * time.Second, 10 * time.Second
	bubble(t, func(w *world) {
		w.create()
		w.publish(1)
		for p := range 8 {
			w.ledger.Exempt(p)
		}
		m := w.join(WithDeadLetter("dead.orders"), WithRetry(Retry{Attempts: 1, First: first, Limit: limit}))
		var a tries
		refusing, err := w.producer.Conn().Subscribe("dead.orders", func(msg *nats.Msg) {
			if p := msg.Header.Get(HeaderPartition); p != "" {
				a.note(int(p[0] - '0'))
			}
			_ = msg.Respond([]byte(`{"error":{"code":503,"description":"not now"}}`))
		})
		require.NoError(t, err)
		m.processWith(func(context.Context, Message) error { return errBad })
		time.Sleep(2 * time.Minute)
		a.requireSpacing(t, 8, 6, first, limit)
		require.NoError(t, refusing.Unsubscribe())
		_, err = w.js.CreateStream(w.ctx(time.Minute), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, Storage: w.storage})
		require.NoError(t, err)
		time.Sleep(limit + time.Second)
		for _, p := range m.Stats().Partitions {
			require.EqualValues(t, p.Partition+1, p.Acknowledged)
		}
	})
}

// A message that is nil is refused, before anything is published.
func TestPublisherRefusesNil(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		p, err := NewPublisher(w.js, w.layout)
		require.NoError(t, err)
		_, err = p.PublishMsg(w.ctx(time.Minute), "a", nil)
		require.ErrorIs(t, err, ErrInvalidConfig)
		_, err = p.PublishMsgAsync("a", nil)
		require.ErrorIs(t, err, ErrInvalidConfig)
		_, err = p.Publish(w.ctx(time.Minute), "a", nil)
		require.NoError(t, err, "no data")
	})
}
