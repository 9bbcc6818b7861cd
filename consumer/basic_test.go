package consumer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestTwoReadersShareEverything(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(100)
		a, b := w.join(), w.join()
		a.process()
		b.process()
		took := w.waitRead(10 * time.Second)
		t.Logf("read after %v, %d repeats", took, w.ledger.again())
		require.Len(t, a.Assigned(), 4)
		w.publish(10)
		took = w.waitRead(time.Second)
		t.Logf("read after %v", took)
		require.Zero(t, w.ledger.again())
	})
}

// docs/ROBUSTNESS.md row 44.
func TestFetchReturnsTheSameUntilAcknowledged(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		first, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.Len(t, first, 10)
		for _, d := range []time.Duration{0, time.Second, time.Minute} {
			time.Sleep(d)
			again, err := a.Fetch(ctx, 10)
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
		require.NoError(t, a.Ack(ctx, first[:5]...))
		again, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		for _, m := range again {
			for _, acked := range first[:5] {
				require.False(t, m.Partition == acked.Partition && m.Sequence <= acked.Sequence)
			}
		}
		require.NoError(t, a.Ack(ctx, first...))
		total := len(first)
		for total < 80 {
			more, err := a.Fetch(ctx, 100)
			require.NoError(t, err)
			require.NotEmpty(t, more)
			require.NoError(t, a.Ack(ctx, more...))
			total += len(more)
		}
		require.Equal(t, 80, total)
		began := time.Now()
		none, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, none)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

// In real time, with files: a steady backlog, and one reader that leaves in the middle.
func TestRealTime(t *testing.T) {
	natstest.Long(t)
	var lost atomic.Int32
	realTime(t, func(w *world) {
		w.create()
		for range 200 {
			w.publishAsync()
		}
		a, b := w.join(), w.join()
		a.process()
		b.process()
		w.waitOwned(2 * time.Minute)
		for range 200 {
			w.publishAsync()
		}
		a.leave()
		w.waitRead(3 * time.Minute)
		if lost.Load() == 0 { // on a machine that is busy for so long that the leases run out, messages are repeated
			require.Zero(t, w.ledger.again())
		}
	}, withFiles(), withLayout(SpreadOver("ORDERS", "orders", 20, 5)), withOptions(
		WithManagerOptions(parti.WithHeartbeat(time.Second, 20*time.Second)),
		WithHooks(Hooks{OnLost: func(int, int64) { lost.Add(1) }}),
	))
}

func TestInvalidSettingsAreRefusedAllAtOnce(t *testing.T) {
	_, err := NewReader(nil, "group", 0, nil, WithBuffer(0, 1), WithCommit(0, 0), WithDeadLetter(""), WithLagAware(LagAware{MovesPerMinute: 2}))
	require.ErrorIs(t, err, ErrInvalidConfig)
	for _, text := range []string{"an option is nil", "partitions", "WithBuffer", "WithCommit", "WithDeadLetter", "WithLayout", "JetStream", "WithLagAware"} {
		require.ErrorContains(t, err, text)
	}
	same := func(int) (string, string) { return "S", "s" }
	bubble(t, func(w *world) {
		_, err := NewReader(w.js, "group", 2, WithResolver(same))
		require.ErrorContains(t, err, "partitions 0 and 1 the same subject")
		_, err = NewReader(w.js, "a.b", 2, WithLayout(w.layout))
		require.ErrorIs(t, err, ErrInvalidConfig)
		r, err := NewReader(w.js, "group", 8, WithLayout(w.layout))
		require.NoError(t, err)
		require.NoError(t, r.Close(w.ctx(time.Minute)), "never started")
		require.ErrorIs(t, r.Start(w.ctx(time.Minute)), ErrReaderClosed)
	})
}

// The answers to commits vanish: their outcome is found out, nothing is committed twice or forgotten.
func TestUnknownOutcomes(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		for range 8 {
			ms, err := a.Fetch(ctx, 10)
			require.NoError(t, err)
			require.NotEmpty(t, ms)
			acked := make(chan error, 1)
			go func() { acked <- a.Ack(ctx, ms...) }()
			time.Sleep(50 * time.Microsecond) // on its way
			a.client.Gate().Lose(natstest.FromServer)
			time.Sleep(500 * time.Millisecond)
			a.client.Gate().Heal()
			require.NoError(t, <-acked)
		}
		b, err := NewReader(w.env.Connect("b").JS(), "group", w.parts, w.options()...)
		require.NoError(t, err)
		require.NoError(t, b.Start(ctx))
		for _, p := range a.Assigned() {
			mine, err := a.Committed(ctx, p)
			require.NoError(t, err)
			e, err := b.offsets.Load().Get(ctx, offsetKey("group", p))
			require.NoError(t, err)
			s, err := decodeOffset(e.Value)
			require.NoError(t, err)
			require.Equal(t, s.Sequence, mine.Sequence)
		}
		require.NoError(t, b.Close(ctx))
	})
}
