package consumer

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func texts(ms []Message) (out []string) {
	for _, m := range ms {
		out = append(out, strconv.Itoa(m.Partition)+"/"+string(m.Data))
	}
	return out
}

// What Fetch has returned of a partition that is paused comes again after Resume, before anything behind it.
func TestPausedMessagesComeAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		a := w.join(WithFetchWait(time.Second, 0))
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		w.publish(4, 0)
		first, err := a.Fetch(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"0/1", "0/2"}, texts(first))
		a.Pause(0)
		w.publish(3, 1)
		for read := 0; read < 3; {
			others, err := a.Fetch(ctx, 3)
			require.NoError(t, err)
			require.NotEmpty(t, others)
			for _, m := range others {
				require.Equal(t, 1, m.Partition)
			}
			require.NoError(t, a.Ack(ctx, others...))
			read += len(others)
		}
		require.NoError(t, a.Ack(ctx, first[0]), "acknowledgements go on working")
		none, err := a.Fetch(ctx, 3)
		require.NoError(t, err)
		require.Empty(t, none)
		a.Resume(0)
		again, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"0/2", "0/3", "0/4"}, texts(again))
	})
}

// A message at which a loop over All was left can be acknowledged behind the loop too.
func TestAckBehindALoop(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(5, 4, WithFetchWait(time.Second, 0))
		var last Message
		for m, err := range a.All(ctx) {
			require.NoError(t, err)
			if last = m; string(m.Data) == "3" {
				break
			}
		}
		require.NoError(t, a.Ack(ctx, last))
		ms, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"4/4", "4/5"}, texts(ms))
	})
}

// A handler that has acknowledged its message and fails then does not get it again.
func TestAckInAHandlerThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(3, 4)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var calls []string
		err := a.Process(ctx, func(ctx context.Context, m Message) error {
			calls = append(calls, string(m.Data))
			if string(m.Data) == "2" {
				if err := a.Ack(ctx, m); err != nil {
					return err
				}
				return errors.New("after the acknowledgement")
			}
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"1", "2", "3"}, calls)
	})
}

// Ack of messages of two generations of a partition is nil only if both are stored.
func TestAckOfTwoGenerations(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(5, 4)
		old, err := a.Fetch(ctx, 5)
		require.NoError(t, err)
		require.Len(t, old, 5)
		require.NoError(t, a.Seek(ctx, 4, Earliest()))
		now, err := a.Fetch(ctx, 2)
		require.NoError(t, err)
		require.ErrorIs(t, a.Ack(ctx, old[4], now[0]), ErrSeeked)
		require.EqualValues(t, now[0].Sequence, a.Stats().Partitions[4].Committed, "the one that counts is stored regardless")

		// A message that the caller made up is as good as the one that was handed out.
		rest, err := a.Fetch(ctx, 10)
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx, rest[0], Message{Partition: 4, Sequence: now[1].Sequence}))
		require.EqualValues(t, now[1].Sequence, a.Stats().Partitions[4].Committed)
	})
}

// Where one of two ownerships of a partition is over, Ack says so.
func TestAckOfTwoOwnerships(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(5, 4)
		old, err := a.Fetch(ctx, 5)
		require.NoError(t, err)
		a.client.Gate().Cut()
		time.Sleep(30 * time.Second)
		a.client.Gate().Heal()
		w.waitOwned(30 * time.Second)
		now, err := a.Fetch(ctx, 2)
		require.NoError(t, err)
		require.Greater(t, now[0].Epoch, old[0].Epoch)
		require.ErrorIs(t, a.Ack(ctx, append(old, now...)...), ErrPartitionLost)
		require.EqualValues(t, now[1].Sequence, a.Stats().Partitions[4].Committed)
	})
}

// What is acknowledged while the last commit of a partition is under way is stored too, or refused.
func TestAckLaterDuringTheLastCommit(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(200, 4)
		ms, err := a.Fetch(ctx, 200)
		require.NoError(t, err)
		require.Len(t, ms, 200)
		require.NoError(t, a.AckLater(ms[0]))
		a.client.Gate().Delay(30 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- a.Close(ctx) }()
		accepted := ms[0]
		for _, m := range ms[1:] {
			if a.AckLater(m) == nil {
				accepted = m
			}
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, <-closed)
		a.gone = true
		b := w.join()
		w.waitOwned(10 * time.Second)
		o, err := b.Committed(ctx, 4)
		require.NoError(t, err)
		require.Equal(t, accepted.Sequence, o.Sequence)
	})
}
