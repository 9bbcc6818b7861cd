package consumer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/test/checker/ledger"
	"github.com/stretchr/testify/require"
)

// witness takes down what the members of a world are handed, for the ledger. The payloads of a partition count from 1.
type witness struct {
	*ledger.Ledger
	mu   sync.Mutex // guards dead, and what a test keeps beside
	dead map[string]bool
	// unjudged is set where what is stored when the test ends is not what was handed out.
	unjudged bool
}

func newWitness(parts int) *witness {
	return &witness{Ledger: ledger.New(parts), dead: map[string]bool{}}
}

// silence makes a member that was killed count no more, whatever its goroutines still do.
func (w *witness) silence(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[name] = true
}

func (w *witness) silent(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[name]
}

func place(name string, m Message) ledger.Place {
	return ledger.Place{Reader: name, Partition: m.Partition, Epoch: m.Epoch, Sequence: m.Sequence}
}

// handed takes down a message that was handed out.
func (w *witness) handed(name string, m Message) {
	if !w.silent(name) {
		n, _ := strconv.Atoi(string(m.Data)) // 0 is refused
		w.Deliver(place(name, m), n)
	}
}

// record takes down a message that was handed out and is acknowledged at once.
func (w *witness) record(name string, m Message) {
	w.handed(name, m)
	w.acks(name, m)
}

func (w *witness) acks(name string, m Message) {
	if !w.silent(name) {
		w.Acknowledge(place(name, m))
	}
}

// answered takes down what came of the acknowledgement of these messages.
func (w *witness) answered(name string, err error, ms []Message) {
	for _, m := range ms {
		if err == nil && !w.silent(name) {
			w.Answer(place(name, m), ledger.Stored)
		}
	}
}

// count returns how many messages were recorded.
func (w *witness) count() int { return w.Tally().Messages }

// again returns how many of them were repeats.
func (w *witness) again() int { return w.Tally().Repeats }

// judge looks at everything that was stored, when all members have ended.
func (w *world) judge() {
	var records *ledger.Records
	if w.recorded && !w.ledger.unjudged {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var streams []string
		seen := map[string]bool{}
		for p := range w.parts {
			if s, _ := w.layout.Resolve(p); !seen[s] {
				seen[s] = true
				streams = append(streams, s)
			}
		}
		var err error
		records, err = ledger.Read(ctx, w.js, streams, DefaultOffsetsBucket, "group")
		if err != nil {
			w.t.Errorf("what is stored cannot be read: %v", err)
		}
	}
	if records != nil {
		w.t.Logf("judged by %d messages, %d offsets", len(records.Messages), len(records.Offsets))
	}
	faults := w.ledger.Judge(records)
	for _, f := range faults[:min(10, len(faults))] {
		w.t.Error(f)
	}
	if len(faults) > 10 {
		w.t.Errorf("and %d more", len(faults)-10)
	}
}

func (w *world) describeProgress() (out string) {
	for p, n := range w.ledger.Progress() {
		if n != w.next[p] {
			out += fmt.Sprintf("partition %d: %d of %d read\n", p, n, w.next[p])
		}
	}
	return out
}

// keepOffsets makes the bucket of the offsets such that every write can be read when all is over.
func (w *world) keepOffsets(t *testing.T) {
	t.Helper()
	require.NoError(t, ledger.KeepOffsets(w.ctx(time.Minute), w.js, DefaultOffsetsBucket, 1, w.storage))
}
