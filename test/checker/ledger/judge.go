package ledger

import (
	"fmt"
	"sort"
)

// Message is one stored message.
type Message struct {
	Partition int
	Sequence  uint64
	Counter   int
}

// Offset is one write of an offset that the server has stored.
type Offset struct {
	Partition int
	Sequence  uint64
	Epoch     int64
	Worker    string
	// Writer is the same for all writes of one run, and no other's: a run's first write is its claim.
	Writer string
}

// Records are what the server has stored, each in the server's order.
type Records struct {
	Messages []Message
	Offsets  []Offset
}

// Judge returns what is wrong. Without records it looks at each run for itself.
func (l *Ledger) Judge(records *Records) []Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := &judge{faults: append([]Fault(nil), l.strange...)}
	for p := range l.parts {
		if part := &l.parts[p]; !part.exempt {
			j.partition(p, part, records)
		}
	}
	return j.faults
}

// judge is one judgement; what follows faults is of the partition at hand.
type judge struct {
	faults []Fault

	p       int
	part    *partition
	known   bool     // there are records
	stored  []uint64 // sequence of each message; the first has the counter 1
	offsets []Offset
	claims  map[int64][]int // by epoch: the counters covered by what its runs have claimed
}

func (j *judge) fault(rule Rule, format string, args ...any) {
	j.faults = append(j.faults, Fault{rule, j.p, fmt.Sprintf(format, args...)})
}

func (j *judge) partition(p int, part *partition, records *Records) {
	j.p, j.part, j.known, j.stored, j.offsets, j.claims = p, part, records != nil, nil, nil, map[int64][]int{}
	if j.known && !j.read(records) {
		return
	}
	owner := map[int64]string{}
	for _, r := range part.order {
		if other, dup := owner[r.epoch]; dup && len(r.events) > 0 {
			j.fault(TwoOwners, "%s and %s under epoch %d", other, r.reader, r.epoch)
		}
		owner[r.epoch] = r.reader
		j.run(r)
	}
	if j.known {
		j.writes()
		for n := 1; n <= len(j.stored); n++ {
			if n >= len(part.seen) || !part.seen[n] {
				j.fault(Missing, "%d (sequence %d) was never handed out", n, j.stored[n-1])
				break
			}
		}
	}
}

// read takes in what is stored of the partition, and reports whether it can be judged by that.
func (j *judge) read(records *Records) bool {
	for _, m := range records.Messages {
		if m.Partition != j.p {
			continue
		}
		j.stored = append(j.stored, m.Sequence)
		if m.Counter != len(j.stored) {
			j.fault(Produced, "%d is stored as sequence %d, where %d should follow", m.Counter, m.Sequence, len(j.stored))
			return false
		}
	}
	claimed := map[string]bool{}
	for _, o := range records.Offsets {
		if o.Partition != j.p {
			continue
		}
		j.offsets = append(j.offsets, o)
		if !claimed[o.Writer] {
			claimed[o.Writer] = true
			j.claims[o.Epoch] = append(j.claims[o.Epoch], j.upTo(o.Sequence))
		}
	}
	return true
}

// upTo returns how many messages an offset covers.
func (j *judge) upTo(sequence uint64) int {
	return sort.Search(len(j.stored), func(i int) bool { return j.stored[i] > sequence })
}

// run judges what one run was handed.
func (j *judge) run(r *run) {
	w := walk{judge: j, r: r}
	for _, e := range r.events {
		if e.counter == 0 {
			w.acknowledged(e.sequence)
		} else if !w.handed(e) {
			return // the rest would only repeat it
		}
	}
}

// walk goes through a run.
type walk struct {
	*judge
	r     *run
	prev  int // counter of the last message; 0: none yet
	acked int // counter up to which the run has acknowledged
	open  []event
}

func (w *walk) acknowledged(sequence uint64) {
	for len(w.open) > 0 && w.open[0].sequence <= sequence {
		w.acked = w.open[0].counter
		w.open = w.open[1:]
	}
}

// handed judges one message, and reports whether the run can be followed further.
func (w *walk) handed(e event) bool {
	if w.known && (e.counter > len(w.stored) || w.stored[e.counter-1] != e.sequence) {
		w.fault(Foreign, "%s, epoch %d: %d came as sequence %d", w.r.reader, w.r.epoch, e.counter, e.sequence)
		return false
	}
	switch {
	case w.prev > 0 && e.counter == w.prev+1:
	case w.prev > 0 && e.counter == w.acked+1, w.begins(e.counter): // again, or anew
		w.acked, w.open = e.counter-1, w.open[:0]
	default:
		w.misplaced(e.counter)
		return false
	}
	w.prev = e.counter
	w.open = append(w.open, e)
	return true
}

// begins reports whether the run may begin with this message: right behind what it has claimed. Without records it may begin anywhere, once.
func (w *walk) begins(counter int) bool {
	if !w.known {
		return w.prev == 0
	}
	for _, covered := range w.claims[w.r.epoch] {
		if counter == covered+1 {
			return true
		}
	}
	return false
}

func (w *walk) misplaced(counter int) {
	claims := w.claims[w.r.epoch]
	who := fmt.Sprintf("%s, epoch %d", w.r.reader, w.r.epoch)
	switch {
	case w.prev > 0 && counter > w.prev:
		w.fault(Gap, "%s: %d follows %d", who, counter, w.prev)
	case w.prev > 0:
		w.fault(Order, "%s: %d follows %d, and %d is acknowledged", who, counter, w.prev, w.acked)
	case len(claims) == 0:
		w.fault(Unclaimed, "%s: was handed %d and has claimed no offset", who, counter)
	case counter > claims[0]:
		w.fault(Gap, "%s: begins with %d, and its offset covers %d", who, counter, claims[0])
	default:
		w.fault(Repeat, "%s: begins with %d, although its offset covers %d", who, counter, claims[0])
	}
}

// writes judges the stored offsets, and the acknowledgements that rest on them.
func (j *judge) writes() {
	workers, claimed := map[int64]string{}, map[string]bool{}
	var before Offset
	for _, o := range j.offsets {
		if o.Epoch < before.Epoch {
			j.fault(Fenced, "%s stored %d under epoch %d after %s had stored under epoch %d", o.Worker, o.Sequence, o.Epoch, before.Worker, before.Epoch)
		}
		if o.Sequence < before.Sequence {
			j.fault(Back, "%s stored %d (epoch %d) after %s had stored %d (epoch %d)",
				o.Worker, o.Sequence, o.Epoch, before.Worker, before.Sequence, before.Epoch)
		}
		if other, known := workers[o.Epoch]; known && other != o.Worker {
			j.fault(TwoOwners, "%s and %s have stored offsets under epoch %d", other, o.Worker, o.Epoch)
		}
		workers[o.Epoch] = o.Worker
		have := j.acknowledged(o.Epoch)
		if !claimed[o.Writer] {
			have = j.upTo(before.Sequence) // a claim takes over what is there
		}
		claimed[o.Writer] = true
		if j.upTo(o.Sequence) > have {
			j.fault(Ahead, "%s stored %d (epoch %d), which covers %d; acknowledged are %d", o.Worker, o.Sequence, o.Epoch, j.upTo(o.Sequence), have)
		}
		before = o
	}
	for _, r := range j.part.order {
		if r.stored > 0 && !j.wrote(r) {
			j.fault(Zombie, "%s, epoch %d: the acknowledgement of %d succeeded, and was not stored under its epoch", r.reader, r.epoch, r.stored)
		}
	}
}

// acknowledged returns up to which counter the runs of an epoch may store an offset: what they acknowledged, or have claimed.
func (j *judge) acknowledged(epoch int64) (most int) {
	for _, covered := range j.claims[epoch] {
		most = max(most, covered)
	}
	for _, r := range j.part.order {
		if r.epoch == epoch {
			most = max(most, j.upTo(r.acked))
		}
	}
	return most
}

func (j *judge) wrote(r *run) bool {
	for _, o := range j.offsets {
		if o.Epoch == r.epoch && o.Sequence >= r.stored {
			return true
		}
	}
	return false
}
