package consumer

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// writes returns how many offsets were written since the bucket was made.
func (w *world) writes() int {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(time.Minute), "KV_"+DefaultOffsetsBucket)
	require.NoError(w.t, err)
	return int(s.CachedInfo().State.LastSeq)
}

// One Reader of 100 partitions, which all have a message every 50 ms, writes 200 offsets per second and not 1,000; each message is
// acknowledged in a write all the same, at most 500 ms later.
func TestOffsetWritesPerSecond(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		a := w.join()
		w.waitOwned(10 * time.Second)
		a.process()
		w.publish(20)
		w.waitRead(10 * time.Second)
		time.Sleep(time.Second)
		before, began := w.writes(), time.Now()
		for range 100 {
			w.publish(1)
			time.Sleep(50 * time.Millisecond)
		}
		took := time.Since(began)
		time.Sleep(600 * time.Millisecond)
		for p := range w.parts {
			o, err := a.Committed(w.ctx(time.Minute), p)
			require.NoError(t, err)
			stats := a.Stats().Partitions[p]
			require.Equal(t, stats.Acknowledged, o.Sequence)
		}
		n := w.writes() - before
		require.InDelta(t, 200*took.Seconds(), float64(n), 60*took.Seconds())
	}, withLayout(SubjectPerPartition("ORDERS", "orders", 100)))
}

// OnCommitted that takes long holds back its partition, and no other.
func TestSlowOnCommitted(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		told := make([]uint64, w.parts) // by partition; each by one goroutine at a time
		block := make(chan struct{})
		a := w.join(WithHooks(Hooks{OnCommitted: func(o Offset) {
			if o.Partition == 0 {
				<-block
			}
			told[o.Partition] = o.Sequence
		}}))
		a.process()
		w.waitOwned(10 * time.Second)
		for range 3 {
			w.publish(1)
			time.Sleep(time.Second)
		}
		stored := func(p int) uint64 {
			o, err := a.Committed(w.ctx(time.Minute), p)
			require.NoError(t, err)
			return o.Sequence
		}
		require.EqualValues(t, 1, stored(0))
		require.EqualValues(t, 2*w.parts+2, stored(1))
		close(block)
		time.Sleep(time.Second)
		require.EqualValues(t, 2*w.parts+1, stored(0))
		a.leave()
		for p := range w.parts {
			require.EqualValues(t, 2*w.parts+1+p, told[p], "partition %d", p)
		}
	})
}

// A write that is not answered is found out about; what is acknowledged meanwhile is stored, and the partition goes on in rounds.
func TestUnansweredWrite(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(2)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		ms, err := a.Fetch(ctx, 2*w.parts)
		require.NoError(t, err)
		require.NoError(t, a.rounds.sub.Unsubscribe()) // the answers get lost
		acked := make(chan error, 1)
		go func() { acked <- a.Ack(ctx, ms...) }()
		time.Sleep(time.Second)
		require.Empty(t, acked)
		_, err = a.nc.Subscribe(a.rounds.inbox+"*", a.rounds.answered)
		require.NoError(t, err)
		require.NoError(t, <-acked)
		for p, s := range a.Stats().Partitions {
			require.EqualValues(t, w.parts+1+p, s.Committed)
		}
		before := w.writes()
		w.publish(1)
		ms, err = a.Fetch(ctx, w.parts)
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, a.Ack(ctx, ms...))
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, w.parts, w.writes()-before)
	})
}

// More partitions than writes may be under way at once are all stored, by one Ack.
func TestAckOfManyPartitions(t *testing.T) {
	natstest.Long(t)
	const parts = 3 * maxFlights
	bubble(t, func(w *world) {
		w.create()
		w.publish(1)
		a := w.join(WithFetchWait(10*time.Second, time.Second))
		w.waitOwned(time.Minute)
		ctx := w.ctx(time.Hour)
		ms, err := a.Fetch(ctx, parts)
		require.NoError(t, err)
		require.Len(t, ms, parts)
		before := w.writes()
		require.NoError(t, a.Ack(ctx, ms...))
		require.Equal(t, parts, w.writes()-before)
	}, withLayout(SubjectPerPartition("ORDERS", "orders", parts)))
}

// A partition that is released while its offset is being written waits for that write, and stores what was acknowledged behind it.
func TestReleaseWaitsForTheWrite(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(20)
		a := w.join(WithCommit(time.Hour, 1)) // every message is written
		a.process()
		w.waitRead(10 * time.Second)
		a.leave()
		b := w.join()
		b.process()
		w.waitOwned(10 * time.Second)
		w.publish(1)
		w.waitRead(10 * time.Second)
		require.Zero(t, w.ledger.again())
	})
}
