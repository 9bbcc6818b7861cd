package consumer

import (
	"strconv"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// docs/ROBUSTNESS.md row 47, in virtual time: 8 → 9 → 8 readers under load, 100 partitions.
func TestElasticChange(t *testing.T) {
	natstest.Long(t)
	for name, opts := range map[string][]worldOption{
		"a consumer each": {withLayout(SpreadOver("ORDERS", "orders", 100, 25))},
		"shared":          {withLayout(SubjectPerPartition("ORDERS", "orders", 100))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				for range 8 {
					w.join().process()
				}
				w.waitOwned(20 * time.Second)
				pace := 25 * time.Millisecond
				load := func(d time.Duration) time.Duration {
					w.ledger.ResetSilence()
					for end := time.Now().Add(d); time.Now().Before(end); {
						due := time.Now().Add(pace)
						w.publishAsync()
						time.Sleep(time.Until(due))
					}
					return w.ledger.ResetSilence()
				}
				t.Logf("steady: longest silence %v", load(500*time.Millisecond))
				ninth := w.join()
				ninth.process()
				joined := load(1800 * time.Millisecond)
				require.NotEmpty(t, ninth.Assigned())
				done := make(chan struct{})
				go func() { defer close(done); ninth.leave() }()
				left := load(1800 * time.Millisecond)
				<-done
				w.waitRead(5 * time.Second)
				t.Logf("join: longest silence %v, leave: %v, %d repeats of %d", joined, left, w.ledger.again(), w.ledger.count())
				require.LessOrEqual(t, joined, 100*time.Millisecond)
				require.LessOrEqual(t, left, 100*time.Millisecond)
				require.Zero(t, w.ledger.again())
			}, opts...)
		})
	}
}

// publishAsync stores one message in each of the partitions, or in all where none is named, without waiting for each.
func (w *world) publishAsync(partitions ...int) {
	w.t.Helper()
	if len(partitions) == 0 {
		for p := range w.parts {
			partitions = append(partitions, p)
		}
	}
	for _, p := range partitions {
		w.next[p]++
		_, err := w.js.PublishAsync(w.layout.prefix+"."+strconv.Itoa(p), []byte(strconv.Itoa(w.next[p])))
		require.NoError(w.t, err)
	}
	<-w.js.PublishAsyncComplete()
}
