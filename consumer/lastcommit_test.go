package consumer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/stretchr/testify/require"
)

// unstoredAtTheEnd returns a reader that has acknowledged messages whose offsets are refused, and counts how its ownerships end.
func (w *world) unstoredAtTheEnd() (a *member, revoked, lost *atomic.Int64) {
	w.t.Helper()
	revoked, lost = new(atomic.Int64), new(atomic.Int64)
	a, _ = w.owning(0, 0, WithHooks(Hooks{
		OnRevoked: func(int, int64) { revoked.Add(1) }, OnLost: func(int, int64) { lost.Add(1) },
	}))
	a.process()
	w.publish(5)
	w.waitRead(10 * time.Second)
	time.Sleep(time.Second)
	w.refuseOffsets(true)
	w.publish(5)
	time.Sleep(time.Second)
	a.gone = true
	return a, revoked, lost
}

// The last commit is repeated: offsets that can be stored again a moment after the partitions are given back are, and nothing comes again.
func TestLastCommitIsRepeated(t *testing.T) {
	bubble(t, func(w *world) {
		a, revoked, lost := w.unstoredAtTheEnd()
		go func() {
			time.Sleep(time.Second)
			w.refuseOffsets(false)
		}()
		require.NoError(t, a.Close(w.ctx(time.Minute)))
		a.finish()
		require.EqualValues(t, w.parts, revoked.Load())
		require.Zero(t, lost.Load())
		b := w.join()
		b.process()
		w.publish(1)
		w.waitRead(20 * time.Second)
		require.Zero(t, w.ledger.again())
	})
}

// It is not repeated for ever. The partitions are released all the same, and OnLost tells.
func TestLastCommitIsGivenUp(t *testing.T) {
	bubble(t, func(w *world) {
		a, revoked, lost := w.unstoredAtTheEnd()
		began := time.Now()
		require.NoError(t, a.Close(w.ctx(time.Minute)))
		require.InDelta(t, finalCommit, time.Since(began), float64(time.Second))
		a.finish()
		require.Zero(t, revoked.Load())
		require.EqualValues(t, w.parts, lost.Load())
		w.refuseOffsets(false)
		b := w.join()
		b.process()
		w.publish(1)
		w.waitRead(20 * time.Second)
		require.Equal(t, 5*w.parts, w.ledger.again(), "what was not stored")
	})
}

// Close's context bounds it. Then its error names the partitions, and nothing is stored any more.
func TestLastCommitEndsWithClose(t *testing.T) {
	bubble(t, func(w *world) {
		a, revoked, lost := w.unstoredAtTheEnd()
		began := time.Now()
		err := a.Close(w.ctx(time.Second))
		require.ErrorIs(t, err, parti.ErrDrainTimeout)
		require.ErrorContains(t, err, "could not be stored")
		require.Less(t, time.Since(began), 2*time.Second)
		a.finish()
		w.refuseOffsets(false)
		time.Sleep(finalCommit)
		require.Zero(t, revoked.Load())
		require.EqualValues(t, w.parts, lost.Load())
		b := w.join()
		b.process()
		w.publish(1)
		w.waitRead(20 * time.Second)
		require.Equal(t, 5*w.parts, w.ledger.again(), "what was not stored")
	})
}

// So does the lease: what a former owner does then may be another one's.
func TestLastCommitEndsWithTheLease(t *testing.T) {
	bubble(t, func(w *world) {
		a, revoked, lost := w.unstoredAtTheEnd()
		a.client.Gate().Cut()
		closed := make(chan error, 1)
		go func() { closed <- a.Close(w.ctx(time.Minute)) }()
		time.Sleep(4500 * time.Millisecond) // the lease is 4 s
		require.EqualValues(t, w.parts, lost.Load())
		require.Zero(t, revoked.Load())
		a.client.Gate().Heal()
		<-closed
		a.finish()
		w.refuseOffsets(false)
	})
}
