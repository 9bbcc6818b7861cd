package chaos

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// witness follows the sink's stream from outside: it is told of every write that was stored, in the order of the revisions.
type witness struct {
	t   *testing.T
	env *natstest.Env

	mu      sync.Mutex // guards what follows
	highest map[string]write
	writes  int
	changed chan struct{}
}

// write is one stored write.
type write struct {
	epoch  int64
	worker string
}

// newWitness makes the sink and follows it.
func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{t: t, env: natstest.Single(t, natstest.WithTCP()), highest: map[string]write{}, changed: make(chan struct{})}
	c := w.env.Connect("witness")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.JS().CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + sinkBucket, Subjects: []string{"$KV." + sinkBucket + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgsPerSubject: 1,
		Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: ">", Destination: "witness.>"},
	})
	require.NoError(t, err)
	_, err = c.Conn().Subscribe("witness.>", w.see)
	require.NoError(t, err)
	require.NoError(t, c.Conn().Flush())
	return w
}

// see checks what the whole package is about: for each key, the epochs of what is stored never go down.
func (w *witness) see(m *nats.Msg) {
	key := m.Header.Get("Nats-Subject")[len("$KV."+sinkBucket+"."):]
	epoch, err := strconv.ParseInt(m.Header.Get(fence.HeaderEpoch), 10, 64)
	if err != nil {
		w.t.Errorf("stored without an epoch: %v", m.Header)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.highest[key]; epoch < last.epoch {
		w.t.Errorf("%s: a write of %s under epoch %d was stored after epoch %d of %s", key, m.Data, epoch, last.epoch, last.worker)
	} else {
		w.highest[key] = write{epoch, string(m.Data)}
	}
	w.writes++
	close(w.changed)
	w.changed = make(chan struct{})
}

// waitFor waits until cond holds of the last write of each key.
func (w *witness) waitFor(d time.Duration, what string, cond func(map[string]write) bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		w.mu.Lock()
		ok, changed, last := cond(w.highest), w.changed, len(w.highest)
		w.mu.Unlock()
		if ok {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-limit.C:
			w.t.Fatalf("waited %v in vain for: %s (%d keys written)", d, what, last)
		}
	}
}

// stored is how many writes were stored.
func (w *witness) stored() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// highestEpoch is the highest that any partition was written under.
func (w *witness) highestEpoch() (highest int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.highest {
		highest = max(highest, l.epoch)
	}
	return highest
}
