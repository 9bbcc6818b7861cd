package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stale makes a partition's next look at its stream one by a server that lags behind by a message.
func (m *member) stale(part int) {
	x, err := m.find(part)
	require.NoError(m.w.t, err)
	state, err := m.streamState(m.w.ctx(time.Minute), x.stream)
	require.NoError(m.w.t, err)
	pos := x.position()
	state.last, state.replicated = pos-1, true
	select {
	case <-x.ticks:
	default:
	}
	x.ticks <- tick{state: state, at: time.Now(), pos: pos, gen: x.gen}
}

// A server of a cluster that answers for a replicated stream may know less of it than was read from another one. That is no lost end.
func TestLaggingServerIsNoLostEnd(t *testing.T) {
	for name, opts := range map[string][]worldOption{"a consumer each": nil, "shared": {withOptions(WithSharedAbove(0))}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				w.publish(10)
				a := w.join()
				a.process()
				w.waitRead(10 * time.Second)
				for range 3 {
					a.stale(3)
					w.publish(10)
					w.waitRead(time.Second)
					require.NoError(t, a.Stats().Partitions[3].Stopped)
				}
				require.Zero(t, w.ledger.again())
			}, opts...)
		})
	}
}

// But what grew beyond the position again, with other messages, has lost its end.
func TestLostEndThatHasGrownAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		a := w.join()
		a.process()
		w.waitRead(10 * time.Second)
		x, err := a.find(3)
		require.NoError(t, err)
		x.mu.Lock()
		x.doubt.stored-- // as if another message had been read under this sequence
		x.mu.Unlock()
		a.stale(3)
		time.Sleep(time.Second)
		require.ErrorIs(t, a.Stats().Partitions[3].Stopped, ErrStreamChanged)
	})
}

// And what stays behind for long has.
func TestDoubtEnds(t *testing.T) {
	bubble(t, func(w *world) {
		x := &run{known: true, id: StreamID{Name: "S"}}
		behind := streamState{id: x.id, last: 9, replicated: true}
		require.NoError(t, x.sameStream(behind, 9))
		for range 30 {
			require.ErrorIs(t, x.sameStream(behind, 10), errBehind)
			time.Sleep(time.Second)
		}
		require.ErrorIs(t, x.sameStream(behind, 10), ErrStreamChanged)
		behind.replicated = false
		require.ErrorIs(t, (&run{known: true, id: x.id}).sameStream(behind, 10), ErrStreamChanged, "one server knows what it has")
	})
}
