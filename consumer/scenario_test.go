package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/stretchr/testify/require"
)

// docs/ROBUSTNESS.md row 45.
func TestConsumerVanishes(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		a.process()
		w.publish(10)
		w.waitRead(10 * time.Second)
		for round := range 5 {
			stream, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
			require.NoError(t, err)
			for name := range stream.ConsumerNames(w.ctx(time.Minute)).Name() {
				require.NoError(t, stream.DeleteConsumer(w.ctx(time.Minute), name))
			}
			if round%2 == 1 {
				a.client.Gate().Drop()
			}
			w.publish(20)
			took := w.waitRead(3 * time.Second)
			t.Logf("round %d: read %v after the consumers were deleted", round, took)
		}
		require.Zero(t, w.ledger.again())
	})
}

// docs/ROBUSTNESS.md row 46.
func TestBacklogChangesOwnerUnderLoad(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(2000)
		slow := func(context.Context, Message) error { time.Sleep(time.Millisecond); return nil }
		a := w.join()
		a.processWith(slow)
		time.Sleep(4 * time.Second)
		b := w.join()
		b.processWith(slow)
		time.Sleep(3 * time.Second)
		require.NotEmpty(t, b.Assigned())
		w.publish(500)
		a.leave()
		c := w.join()
		c.processWith(slow)
		w.waitRead(time.Minute)
		require.Zero(t, w.ledger.again(), "handed over in good order")
	})
}

// docs/ROBUSTNESS.md row 17.
func TestZombiesAckFails(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		a := w.join()
		w.waitOwned(10 * time.Second)
		old, err := a.Fetch(w.ctx(time.Minute), 40)
		require.NoError(t, err)
		require.Len(t, old, 40)
		a.client.Gate().Cut()
		b := w.join()
		b.process()
		w.waitRead(30 * time.Second)
		a.client.Gate().Heal()
		err = a.Ack(w.ctx(time.Minute), old...)
		require.ErrorIs(t, err, ErrPartitionLost)
		time.Sleep(10 * time.Second)
		err = a.Ack(w.ctx(time.Minute), old...)
		require.ErrorIs(t, err, ErrPartitionLost)
		require.ErrorIs(t, a.AckLater(old[0]), ErrPartitionLost)
	})
}

// A zombie that does not know that it is one: its lease seems to hold, and only the offset tells.
func TestAckIsFencedByTheOffset(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(3)
		a := w.join()
		w.waitOwned(10 * time.Second)
		old, err := a.Fetch(w.ctx(time.Minute), 24)
		require.NoError(t, err)
		epoch := old[0].Epoch
		for p := range w.parts { // what another owner would do, at a higher epoch
			o := parti.Ownership{Epoch: epoch + 1}
			o.Holder.Worker = "other"
			writer := a.newOffsetWriter(p, o)
			_, err := writer.claim(w.ctx(time.Minute))
			require.NoError(t, err)
		}
		err = a.Ack(w.ctx(time.Minute), old...)
		require.ErrorIs(t, err, ErrPartitionLost)
		var lost *PartitionLostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, "other", lost.By.Worker)
		require.Equal(t, epoch+1, lost.By.Epoch)
		require.ErrorIs(t, a.Ack(w.ctx(time.Minute), old...), ErrPartitionLost)
	})
}

// docs/ROBUSTNESS.md row 18.
func TestStreamMissingAtStart(t *testing.T) {
	bubble(t, func(w *world) {
		failed := make(chan error, 1000)
		a := w.join(WithHooks(Hooks{OnError: func(_ int, err error) {
			select {
			case failed <- err:
			default:
			}
		}}))
		a.process()
		w.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		require.Error(t, <-failed)
		w.create()
		w.publish(10)
		took := w.waitRead(5 * time.Second)
		t.Logf("read %v after the stream was made", took)
		require.Zero(t, w.ledger.again())
	})
}

func TestServerRestart(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a, b := w.join(), w.join()
		a.process()
		b.process()
		w.publish(50)
		w.waitRead(10 * time.Second)
		for range 3 {
			w.restart()
			w.publish(50)
			took := w.waitRead(20 * time.Second)
			t.Logf("read %v after", took)
			time.Sleep(3 * time.Second)
		}
	}, withFiles())
}

func TestLongCut(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		a.process()
		w.publish(20)
		w.waitRead(10 * time.Second)
		for _, d := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 5 * time.Minute} {
			a.client.Gate().Cut()
			w.publish(20)
			time.Sleep(d)
			a.client.Gate().Heal()
			took := w.waitRead(20 * time.Second)
			t.Logf("cut for %v: read %v after", d, took)
		}
	})
}

func TestKilledReader(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a, b := w.join(), w.join()
		a.process()
		b.process()
		w.publish(50)
		w.waitRead(10 * time.Second)
		time.Sleep(5 * time.Second)
		a.kill()
		w.publish(50)
		took := w.waitRead(10 * time.Second)
		t.Logf("read %v after the kill", took)
		require.LessOrEqual(t, took, 4*time.Second+600*time.Millisecond)
	})
}

func TestPauseKeepsOwnershipAndOrder(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		w.waitOwned(10 * time.Second)
		a.process()
		a.Pause()
		w.publish(30)
		time.Sleep(time.Minute)
		require.Zero(t, w.ledger.count())
		require.Len(t, a.Assigned(), 8)
		a.Resume(3)
		time.Sleep(time.Second)
		require.Equal(t, 30, w.ledger.count())
		a.Resume()
		w.waitRead(5 * time.Second)
		require.Zero(t, w.ledger.again())
	})
}

func TestSeek(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		w.waitOwned(10 * time.Second)
		w.ledger.Exempt(3)
		ctx := w.ctx(time.Hour)
		var at []time.Time
		for range 10 {
			w.publish(1, 3)
			at = append(at, time.Now())
			time.Sleep(time.Second)
		}
		stream, err := w.js.Stream(ctx, "ORDERS")
		require.NoError(t, err)
		require.NoError(t, stream.Purge(ctx, jetstream.WithPurgeSequence(3))) // 1 and 2 are gone
		fetch := func() (first string) {
			ms, err := a.Fetch(ctx, 100)
			require.NoError(t, err)
			if len(ms) == 0 {
				return ""
			}
			require.Equal(t, 3, ms[0].Partition)
			require.NoError(t, a.Ack(ctx, ms...))
			return string(ms[0].Data)
		}
		fetch()
		for _, c := range []struct {
			to   Position
			want string
		}{
			{Earliest(), "3"}, {Latest(), ""}, {AtSequence(5), "5"}, {AtSequence(0), "3"}, {AtSequence(1), "3"}, {AtSequence(10), "10"},
			{AtSequence(11), ""}, {AtSequence(1000), ""}, {AtTime(at[5]), "7"}, {AtTime(at[5].Add(-time.Millisecond * 500)), "6"},
			{AtTime(at[0].Add(-time.Hour)), "3"}, {AtTime(at[9].Add(time.Hour)), ""},
		} {
			before, err := a.Fetch(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, a.Seek(ctx, 3, c.to), c.to)
			if len(before) > 0 {
				require.ErrorIs(t, a.Ack(ctx, before...), ErrSeeked)
			}
			o, err := a.Committed(ctx, 3)
			require.NoError(t, err)
			require.Equal(t, c.want, fetch(), "%v, committed %d", c.to, o.Sequence)
		}
		w.publish(1, 3)
		require.Equal(t, "11", fetch())
		require.ErrorIs(t, a.Seek(ctx, 99, Earliest()), ErrNotAssigned)
	})
}

func TestLagAndCommitted(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		w.publish(100, 2)
		lag, err := a.Lag(ctx, 2)
		require.NoError(t, err)
		require.EqualValues(t, 100, lag)
		ms, err := a.Fetch(ctx, 30)
		require.NoError(t, err)
		require.NoError(t, a.AckLater(ms...))
		time.Sleep(150 * time.Millisecond)
		o, err := a.Committed(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, ms[29].Sequence, o.Sequence)
		lag, err = a.Lag(ctx, 2)
		require.NoError(t, err)
		require.EqualValues(t, 70, lag)
		require.EqualValues(t, 70, a.Stats().Partitions[2].Lag)
		_, err = a.Committed(ctx, 8)
		require.ErrorIs(t, err, ErrNotAssigned)
		require.ErrorIs(t, a.Ack(ctx, Message{Partition: 2, Sequence: 31}), ErrNeverDelivered)
		require.NoError(t, a.Ack(ctx, Message{Partition: 2, Sequence: 30}))
	})
}

func TestAllAcknowledgesBehindItself(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join()
		n := 0
		for m, err := range a.All(w.ctx(time.Hour)) {
			require.NoError(t, err)
			w.ledger.handed("a", m)
			if n++; n == 37 {
				break
			}
			w.ledger.acks("a", m)
		}
		left := n
		for m, err := range a.All(w.ctx(time.Hour)) {
			require.NoError(t, err)
			left++
			w.ledger.handed("a", m)
			if left == 81 { // the one at which the loop was left comes again
				break
			}
			w.ledger.acks("a", m)
		}
		w.waitRead(time.Second)
		require.Equal(t, 1, w.ledger.Tally().Again)
		_, err := a.Fetch(w.ctx(time.Hour), 1)
		require.NoError(t, err)
	})
}

func TestOnlyOneHandsOut(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		a.process()
		time.Sleep(time.Second)
		_, err := a.Fetch(w.ctx(time.Hour), 1)
		require.ErrorIs(t, err, ErrInUse)
		require.ErrorIs(t, a.Process(w.ctx(time.Hour), func(context.Context, Message) error { return nil }), ErrInUse)
		for _, err := range a.All(w.ctx(time.Hour)) {
			require.ErrorIs(t, err, ErrInUse)
		}
		a.leave()
		_, err = a.Fetch(w.ctx(time.Hour), 1)
		require.ErrorIs(t, err, ErrReaderClosed)
		require.ErrorIs(t, a.Start(w.ctx(time.Minute)), ErrReaderClosed)
	})
}
