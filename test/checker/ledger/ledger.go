package ledger

import (
	"fmt"
	"sync"
	"time"
)

// Place says who did something where.
type Place struct {
	Reader    string
	Partition int
	Epoch     int64
	Sequence  uint64
}

// Result is what came of an acknowledgement.
type Result uint8

const (
	Stored Result = iota // it returned nil
	Lost                 // it failed with the error that says that the partition is another's
	Failed               // it failed in another way, or its outcome is not known
)

// Ledger collects what the readers of one group say. All methods may be called from any goroutine; what one run does must be told in its order.
type Ledger struct {
	mu      sync.Mutex
	parts   []partition
	tally   Tally
	strange []Fault // what belongs to no run
}

// Tally is what happened in figures.
type Tally struct {
	Messages int // handed out, whether for the first time or again
	Repeats  int // of them, handed out by another run before
	Again    int // of them, handed out to the same run before
	Runs     int // ownerships under which anything was handed out
	// Acknowledged and Refused count answers: [Stored] and [Lost].
	Acknowledged, Refused int
	// Longest is the longest time between two messages of one partition that were not handed out before; see ResetSilence.
	Longest time.Duration
}

// partition is what is known of one partition.
type partition struct {
	runs    map[runID]*run
	order   []*run
	repeats int
	seen    []bool // by counter
	missing int    // counters below the highest that were not seen
	last    time.Time
	exempt  bool
}

type runID struct {
	reader string
	epoch  int64
}

// run is one ownership, as its reader tells it.
type run struct {
	runID
	events []event
	acked  uint64 // highest sequence that it tried to acknowledge
	top    int    // highest counter that it was handed
	stored uint64 // highest sequence whose acknowledgement succeeded
}

// event is a message handed out, or, with counter 0, an acknowledgement of everything up to the sequence.
type event struct {
	sequence uint64
	counter  int
}

// New returns an empty ledger.
func New(partitions int) *Ledger {
	l := &Ledger{parts: make([]partition, partitions)}
	for p := range l.parts {
		l.parts[p].begin()
	}
	return l
}

func (p *partition) begin() {
	*p = partition{runs: map[runID]*run{}, seen: []bool{true}, exempt: p.exempt, repeats: p.repeats}
}

// find returns the run of a place. Held: mu.
func (l *Ledger) find(at Place) *run {
	p, id := &l.parts[at.Partition], runID{at.Reader, at.Epoch}
	r := p.runs[id]
	if r == nil {
		r = &run{runID: id}
		p.runs[id] = r
		p.order = append(p.order, r)
		l.tally.Runs++
	}
	return r
}

// Deliver takes down a message that was handed out. counter is its payload, from 1 on.
func (l *Ledger) Deliver(at Place, counter int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Partition < 0 || at.Partition >= len(l.parts) || counter < 1 {
		l.strange = append(l.strange, Fault{Foreign, at.Partition, fmt.Sprintf("%s was handed %d as sequence %d", at.Reader, counter, at.Sequence)})
		return
	}
	p, r := &l.parts[at.Partition], l.find(at)
	r.events = append(r.events, event{at.Sequence, counter})
	l.tally.Messages++
	switch seen := counter < len(p.seen) && p.seen[counter]; {
	case seen && counter <= r.top:
		l.tally.Again++
	case seen:
		l.tally.Repeats++
		p.repeats++
	default:
		p.see(counter)
		now := time.Now()
		if !p.last.IsZero() {
			l.tally.Longest = max(l.tally.Longest, now.Sub(p.last))
		}
		p.last = now
	}
	r.top = max(r.top, counter)
}

// see takes note of a counter that was not seen before.
func (p *partition) see(counter int) {
	for len(p.seen) <= counter {
		p.seen = append(p.seen, false)
		p.missing++
	}
	p.seen[counter] = true
	p.missing--
}

// Acknowledge takes down that a reader is about to acknowledge everything of the partition up to the sequence. It must be told before the reader does.
func (l *Ledger) Acknowledge(at Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(at)
	r.events = append(r.events, event{sequence: at.Sequence})
	r.acked = max(r.acked, at.Sequence)
}

// Answer takes down what came of an acknowledgement.
func (l *Ledger) Answer(at Place, result Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch result {
	case Stored:
		l.tally.Acknowledged++
		r := l.find(at)
		r.stored = max(r.stored, at.Sequence)
	case Lost:
		l.tally.Refused++
	}
}

// Exempt ends the judgement of a partition that is moved on purpose, or whose messages are removed.
func (l *Ledger) Exempt(partition int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[partition].exempt = true
}

// Forget is Exempt for a partition that begins at 1 again.
func (l *Ledger) Forget(partition int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.parts[partition]
	p.exempt = true
	p.begin()
}

// Tally returns what has happened so far.
func (l *Ledger) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally
}

// Repeats returns by partition what Tally counts as Repeats.
func (l *Ledger) Repeats() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]int, len(l.parts))
	for p := range l.parts {
		out[p] = l.parts[p].repeats
	}
	return out
}

// ResetSilence begins to measure Tally.Longest anew, and returns what it was.
func (l *Ledger) ResetSilence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.tally.Longest
	l.tally.Longest = 0
	for p := range l.parts {
		l.parts[p].last = time.Time{}
	}
	return d
}

// Complete reports whether of each partition everything up to a counter was handed out. In an exempt one the last is enough.
func (l *Ledger) Complete(upTo []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, n := range upTo {
		if have := &l.parts[p]; len(have.seen) <= n || have.missing > 0 && !have.exempt {
			return false
		}
	}
	return true
}

// Progress returns the highest counter that was handed out of each partition.
func (l *Ledger) Progress() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]int, len(l.parts))
	for p := range l.parts {
		out[p] = len(l.parts[p].seen) - 1
	}
	return out
}
