package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fetch takes few partitions' messages at a time where there are many, so that few writes acknowledge them, and passes none over.
func TestFetchTakesFewPartitionsAtATime(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(2 * fewer)
		m := w.join()
		w.waitOwned(10 * time.Second)
		w.env.WaitFor(10*time.Second, "everything is read ahead", func() bool {
			n := 0
			for _, p := range m.Stats().Partitions {
				n += p.Buffered
			}
			return n == 2*fewer*w.parts
		})
		of := map[int]int{}
		for call := range 16 {
			ms, err := m.Fetch(w.ctx(time.Minute), 128)
			require.NoError(t, err)
			require.Len(t, ms, 128)
			here := map[int]bool{}
			for _, msg := range ms {
				w.ledger.record(m.name, msg)
				here[msg.Partition] = true
				of[msg.Partition]++
			}
			require.LessOrEqual(t, len(here), 4, "call %d", call)
			require.NoError(t, m.Ack(w.ctx(time.Minute), ms...))
		}
		require.Len(t, of, 32)
	}, withLayout(SubjectPerPartition("ORDERS", "orders", 32)))
}
