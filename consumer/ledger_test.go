package consumer

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
)

// ledger is the witness: the payloads of a partition count from 1.
type ledger struct {
	mu      sync.Mutex
	highest []int // counter by partition
	seqs    []uint64
	saved   []uint64       // stored offsets, as the hooks told
	last    map[string]int // counter by reader, partition and epoch
	lastAt  []time.Time
	dead    map[string]bool
	fetch   map[string]uint64
	repeats int
	total   int
	longest time.Duration
	faults  []string
	moved   map[int]bool // partitions that were moved on purpose: no judgement
}

func newLedger(parts int) *ledger {
	return &ledger{highest: make([]int, parts), seqs: make([]uint64, parts), saved: make([]uint64, parts), lastAt: make([]time.Time, parts),
		last: map[string]int{}, fetch: map[string]uint64{}, dead: map[string]bool{}, moved: map[int]bool{}}
}

func (l *ledger) silence(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[name] = true
}

// record takes a processed message down.
func (l *ledger) record(name string, m Message) {
	n, err := strconv.Atoi(string(m.Data))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[name] {
		return
	}
	p := m.Partition
	fault := func(format string, args ...any) {
		l.faults = append(l.faults, fmt.Sprintf("%s, partition %d, epoch %d, message %q (sequence %d): ", name, p, m.Epoch, m.Data, m.Sequence)+fmt.Sprintf(format, args...))
	}
	if err != nil {
		fault("%v", err)
		return
	}
	l.total++
	key := fmt.Sprint(name, p, m.Epoch)
	if !l.moved[p] {
		switch prev, known := l.last[key], l.last[key] > 0; {
		case known && n != prev+1:
			fault("follows %d in the same ownership", prev)
		case n > l.highest[p]+1:
			fault("GAP after %d", l.highest[p])
		case n <= l.highest[p]:
			l.repeats++
			if m.Sequence <= l.saved[p] {
				fault("repeated although %d is committed", l.saved[p])
			}
		}
	}
	l.last[key] = n
	if n > l.highest[p] {
		l.highest[p], l.seqs[p] = n, m.Sequence
		now := time.Now()
		if !l.lastAt[p].IsZero() {
			l.longest = max(l.longest, now.Sub(l.lastAt[p]))
		}
		l.lastAt[p] = now
	}
}

func (l *ledger) committed(o Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moved[o.Partition] {
		return
	}
	if o.Sequence < l.saved[o.Partition] {
		l.faults = append(l.faults, fmt.Sprintf("offset of partition %d went back from %d to %d", o.Partition, l.saved[o.Partition], o.Sequence))
	}
	l.saved[o.Partition] = o.Sequence
}

// count returns how many messages were recorded.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// again returns how many of them were repeats.
func (l *ledger) again() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.repeats
}

// forget makes a partition begin at 1 again, without judgement.
func (l *ledger) forget(p int) {
	l.letMove(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest[p] = 0
}

// letMove ends the judgement of a partition that is moved on purpose.
func (l *ledger) letMove(p int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved[p] = true
}

func (l *ledger) complete(next []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, n := range next {
		if l.highest[p] < n {
			return false
		}
	}
	return true
}

// resetSilence begins to measure the longest silence anew, and returns what it was.
func (l *ledger) resetSilence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.longest
	l.longest = 0
	return d
}

func (l *ledger) describe(next []int) (out string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, n := range next {
		if l.highest[p] != n {
			out += fmt.Sprintf("partition %d: %d of %d read, last sequence %d, committed %d\n", p, l.highest[p], n, l.seqs[p], l.saved[p])
		}
	}
	return out
}

func (l *ledger) check(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.faults {
		if i == 10 {
			t.Errorf("and %d more", len(l.faults)-10)
			break
		}
		t.Error(f)
	}
}
