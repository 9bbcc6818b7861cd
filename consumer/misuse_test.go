package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/stretchr/testify/require"
)

// A message of another ownership is refused by its Epoch, where it was stored in between and knows nothing else of its ownership.
func TestAckOfAnotherEpoch(t *testing.T) {
	bubble(t, func(w *world) {
		a, ctx := w.owning(3, 2)
		late, err := a.Fetch(ctx, 1)
		require.NoError(t, err)
		raw, err := json.Marshal(late[0])
		require.NoError(t, err)
		a.leave()
		b := w.join()
		w.waitOwned(10 * time.Second)
		again, err := b.Fetch(ctx, 3)
		require.NoError(t, err)
		require.Len(t, again, 3)
		require.Greater(t, again[0].Epoch, late[0].Epoch)

		var stored Message
		require.NoError(t, json.Unmarshal(raw, &stored))
		for _, err := range []error{b.Ack(ctx, stored), b.AckLater(stored), b.Ack(ctx, Message{Partition: 2, Sequence: 1, Epoch: again[0].Epoch + 1})} {
			require.ErrorIs(t, err, ErrPartitionLost)
			var lost *PartitionLostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, 2, lost.Partition)
		}
		err = b.Ack(ctx, stored)
		var lost *PartitionLostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, late[0].Epoch, lost.Epoch)
		require.Zero(t, b.Stats().Partitions[2].Acknowledged)

		require.NoError(t, b.Ack(ctx, Message{Partition: 2, Sequence: 1, Epoch: again[0].Epoch}))
		require.NoError(t, b.Ack(ctx, Message{Partition: 2, Sequence: 2}))
		require.Error(t, b.Ack(ctx, stored, again[2]), "the others count")
		require.EqualValues(t, 3, b.Stats().Partitions[2].Committed)
	})
}

// In OnCommitted, Ack waits for the hook that calls it, until its context ends; AckLater does not.
func TestAckInOnCommitted(t *testing.T) {
	bubble(t, func(w *world) {
		var a *member
		inHook := make(chan error, 100)
		a, ctx := w.owning(3, 2, WithHooks(Hooks{OnCommitted: func(o Offset) {
			switch m := (Message{Partition: 2, Sequence: o.Sequence + 1}); o.Sequence {
			case 1:
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				inHook <- a.Ack(short, m)
			case 2:
				inHook <- a.AckLater(m)
			}
		}}))
		ms, err := a.Fetch(ctx, 3)
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx, ms[0]))
		require.ErrorIs(t, <-inHook, context.DeadlineExceeded)
		require.NoError(t, <-inHook)
		time.Sleep(time.Second)
		require.EqualValues(t, 3, a.Stats().Partitions[2].Committed)
	})
}

// Close that a hook keeps waiting says that it may be one.
func TestCloseNamesHooks(t *testing.T) {
	bubble(t, func(w *world) {
		block := make(chan struct{})
		a, ctx := w.owning(1, 2, WithHooks(Hooks{OnCommitted: func(Offset) { <-block }}))
		ms, err := a.Fetch(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx, ms...))
		a.gone = true
		err = a.Close(w.ctx(5 * time.Second))
		require.ErrorIs(t, err, parti.ErrDrainTimeout)
		require.ErrorContains(t, err, "a handler of Process or a hook of these partitions has not returned")
		require.ErrorContains(t, err, "2 (epoch")
		close(block)
		<-a.closed
	})
}

// Offsets that are removed under a live owner are stored anew when it stores the next one, and when it gives the partition back: then nothing repeats. Where
// an idle owner dies before, the next one begins where WithStart says.
func TestOffsetsRemovedUnderTheirOwner(t *testing.T) {
	const n, deleted, purged, busy = 10, 1, 2, 3
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies %t", dies), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.ledger.unjudged = true
				w.create()
				w.publish(n)
				a := w.join()
				a.process()
				w.waitRead(10 * time.Second)
				time.Sleep(time.Second)
				ctx := w.ctx(time.Hour)
				offsets, err := w.js.KeyValue(ctx, DefaultOffsetsBucket)
				require.NoError(t, err)
				for _, p := range []int{deleted, busy} {
					require.NoError(t, offsets.Delete(ctx, offsetKey("group", p)))
				}
				require.NoError(t, offsets.Purge(ctx, offsetKey("group", purged)))
				w.publish(1, busy)
				time.Sleep(2 * offsetsLook)
				o, err := a.Committed(ctx, deleted)
				require.NoError(t, err)
				require.Positive(t, o.Sequence, "from its memory")
				if dies {
					a.kill()
				} else {
					a.leave()
				}
				c := &tallies{seen: map[[2]string]bool{}, again: map[int]int{}}
				b := w.join()
				b.work.Go(func() { unwaited["process"](b, ctx, c) })
				w.waitOwned(20 * time.Second)
				time.Sleep(5 * time.Second)
				b.leave()
				require.Len(t, c.seen, 2*n, "of the partitions deleted and purged, whose owner had nothing to store")
			}, withLayout(StreamPerPartition("ORDERS", "orders", 4)))
		})
	}
}

// What is left out of a Retry is the default, as far as the rest permits.
func TestRetryDefaults(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 10 * time.Second
	for give, want := range map[Retry]Retry{
		{Attempts: 1}:                                   {1, first, limit},
		{First: time.Minute}:                            {0, time.Minute, time.Minute},
		{Attempts: 2, Limit: time.Millisecond}:          {2, time.Millisecond, time.Millisecond},
		{Attempts: 3, Limit: time.Hour}:                 {3, first, time.Hour},
		{Attempts: 4, First: time.Second, Limit: limit}: {4, time.Second, limit},
	} {
		require.Equal(t, want, give.withDefaults())
	}
	bubble(t, func(w *world) {
		for _, r := range []Retry{{Attempts: -1}, {First: -1}, {Limit: -1}, {First: 2, Limit: 1}} {
			_, err := NewReader(w.js, "group", w.parts, WithLayout(w.layout), WithRetry(r))
			require.ErrorIs(t, err, ErrInvalidConfig)
			require.ErrorContains(t, err, "WithRetry: use e.g. Retry{Attempts: 5}")
		}
		_, err := NewReader(w.js, "group", w.parts, WithLayout(w.layout), WithRetry(Retry{Attempts: 1}))
		require.NoError(t, err)
	})
}

// A JetStream context that is nil is refused, and a logger that is nil is none.
func TestNilArguments(t *testing.T) {
	bubble(t, func(w *world) {
		err := w.layout.CreateStreams(w.ctx(time.Minute), nil, jetstream.StreamConfig{})
		require.ErrorIs(t, err, ErrInvalidConfig)
		require.True(t, strings.Contains(err.Error(), "jetstream.New"), err)
		a, ctx := w.owning(1, 2, WithLogger(nil))
		ms, err := a.Fetch(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx, ms...))
	})
}
