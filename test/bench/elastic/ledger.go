package main

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/test/bench/rig"
)

// ledger is told by the handlers what they did. A message carries its number within its key, from 1, and when it was published.
type ledger struct {
	mu    sync.Mutex
	keys  []key
	sight sight
	total int
	wrong []string
}

// key is what is known of one key.
type key struct {
	highest uint64
	at      time.Time         // when that was handled
	last    map[uint64]uint64 // the last number, by ownership: reader and epoch
	saved   uint64            // stored offset: a stream sequence
}

// sight is what happened since the last reset.
type sight struct {
	silence, delay     time.Duration
	repeats, committed int
}

func newLedger(keys int) *ledger {
	l := &ledger{keys: make([]key, keys)}
	for i := range l.keys {
		l.keys[i].last = map[uint64]uint64{}
	}
	return l
}

func message(n uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n), uint64(time.Now().UnixNano()))
}

// record takes a message down that a reader that is alive has handled.
func (l *ledger) record(r *reader, m consumer.Message) {
	n, published := binary.LittleEndian.Uint64(m.Data), int64(binary.LittleEndian.Uint64(m.Data[8:]))
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.dead.Load() {
		return
	}
	l.total++
	k, now := &l.keys[m.Partition], time.Now()
	owner := uint64(r.number)<<48 | uint64(m.Epoch)
	if prev, known := k.last[owner]; known && n != prev+1 {
		l.wrong = append(l.wrong, fmt.Sprintf("key %d: number %d follows %d", m.Partition, n, prev))
	} else if n > k.highest+1 {
		l.wrong = append(l.wrong, fmt.Sprintf("key %d: number %d follows %d, and nothing in between", m.Partition, n, k.highest))
	}
	k.last[owner] = n
	if n <= k.highest {
		l.sight.repeats++
		if m.Sequence <= k.saved {
			l.sight.committed++
		}
		return
	}
	if !k.at.IsZero() {
		l.sight.silence = max(l.sight.silence, now.Sub(k.at))
	}
	k.highest, k.at = n, now
	l.sight.delay = max(l.sight.delay, time.Duration(now.UnixNano()-published))
}

// committed is the hook of all readers.
func (l *ledger) committed(o consumer.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[o.Partition].saved = max(l.keys[o.Partition].saved, o.Sequence)
}

// reset begins to measure anew. A silence that lasts is measured from its beginning.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sight = sight{}
}

// look returns what happened since the last reset. A silence that lasts counts up to now.
func (l *ledger) look() sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sight
	for _, k := range l.keys {
		if !k.at.IsZero() {
			s.silence = max(s.silence, time.Since(k.at))
		}
	}
	return s
}

// waitRead waits until of each key as many were handled as were published.
func (l *ledger) waitRead(published uint64) error {
	return rig.Wait(rig.Limit, "everything to be read", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, k := range l.keys {
			if k.highest < published {
				return false
			}
		}
		return true
	})
}

func (l *ledger) faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong
}

func (l *ledger) handled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
