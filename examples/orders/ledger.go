package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/partigo/parti/consumer"
)

// ledger is told by the handlers what was done. It knows nothing of the library's own opinion.
type ledger struct {
	mu      sync.Mutex
	history map[string][]entry // by order
	seen    int                // different events
	saved   map[int]uint64     // stored offsets by partition
	repeats []entry
	faults  []error
	news    chan struct{} // closed at the next entry
}

// entry is one event that was handled.
type entry struct {
	reader    string
	partition int
	epoch     int64
	order     string
	event     int // index
	again     bool
}

func newLedger() *ledger {
	return &ledger{history: map[string][]entry{}, saved: map[int]uint64{}, news: make(chan struct{})}
}

func (l *ledger) record(reader string, m consumer.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{
		reader: reader, partition: m.Partition, epoch: m.Epoch,
		order: m.Headers.Get(consumer.HeaderKey), event: slices.Index(events, string(m.Data)),
	}
	before := l.history[e.order]
	highest, mine := -1, -1 // what anybody has done, and what was done last under this ownership
	for _, b := range before {
		if highest = max(highest, b.event); b.epoch == m.Epoch {
			mine = b.event
		}
	}
	switch {
	case e.event > highest+1:
		l.faults = append(l.faults, fmt.Errorf("%s of %s passes something over", events[e.event], e.order))
	case mine >= 0 && e.event != mine+1:
		l.faults = append(l.faults, fmt.Errorf("%s handles %s of %s after %s", reader, events[e.event], e.order, events[mine]))
	case e.event <= highest && m.Sequence <= l.saved[m.Partition]:
		l.faults = append(l.faults, fmt.Errorf("%s of %s comes again although that it was done is stored", events[e.event], e.order))
	}
	if e.again = e.event <= highest; e.again {
		l.repeats = append(l.repeats, e)
	} else {
		l.seen++
	}
	l.history[e.order] = append(before, e)
	close(l.news)
	l.news = make(chan struct{})
}

// committed is the readers' hook.
func (l *ledger) committed(o consumer.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved[o.Partition] = o.Sequence
}

// wait returns as soon as n different events were handled.
func (l *ledger) wait(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		seen, news := l.seen, l.news
		l.mu.Unlock()
		if seen >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d events were handled: %w", seen, n, ctx.Err())
		}
	}
}

func (l *ledger) waitAll(ctx context.Context) error { return l.wait(ctx, orders*len(events)) }

// print shows what happened, and returns what went wrong.
func (l *ledger) print(out io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(out, "Some orders that changed hands, and who handled what:")
	shown := 0
	for n := 0; n < orders && shown < 5; n++ {
		order := fmt.Sprintf("order-%02d", n)
		if h := l.history[order]; h[0].reader == "b" {
			fmt.Fprintf(out, "  %s  %s\n", order, story(h))
			shown++
		}
	}
	fmt.Fprintf(out, "\nHandled twice: %d events.\n", len(l.repeats))
	for p := range partitions {
		if list := repeated(l.repeats, p); list != "" {
			fmt.Fprintf(out, "  partition %d: %s\n", p, list)
		}
	}
	fmt.Fprint(out, "b had done them, and died before it was stored: that happens every 100 ms or\n"+
		"100 messages of a partition (consumer.WithCommit). So a went back to the last\n"+
		"offset, and on from there in order. It passes nothing over; that something may\n"+
		"be done again is what at-least-once means.\n\n")
	if err := errors.Join(l.faults...); err != nil {
		return err
	}
	fmt.Fprintf(out, "Nothing is lost: %d of %d events, every order's in order.\n", l.seen, orders*len(events))
	return nil
}

// story is the history of an order in one line.
func story(h []entry) string {
	var words []string
	for _, e := range h {
		word := events[e.event] + " " + e.reader
		if e.again {
			word = events[e.event] + " again " + e.reader
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func repeated(entries []entry, partition int) string {
	var words []string
	for _, e := range entries {
		if e.partition == partition {
			words = append(words, strings.TrimPrefix(e.order, "order-")+" "+events[e.event])
		}
	}
	return strings.Join(words, ", ")
}
