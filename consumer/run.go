package consumer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/types"
)

// run is one ownership of a partition: what was read and not handed out, what was handed out and not acknowledged, and what is committed.
//
// Three goroutines work on it: the handler's, which commits (commit.go); one that reads (reading.go); and the callbacks of
// subscriptions, which take messages in. Users' calls take messages out and acknowledge.
type run struct {
	r       *Reader
	part    int
	stream  string
	subject string
	owner   types.Ownership
	writer  *offsetWriter // of the write under way; without one, of the handler's goroutine while alone is set

	queued   atomic.Bool   // in the Reader's queue of partitions with something to hand out
	ended    chan struct{} // closed when the ownership ends: nothing is read any more, and Seek waits no longer
	wakeRead chan struct{} // for the reading goroutine
	wakeSave chan struct{} // for the handler's goroutine
	hurry    chan struct{} // ends its wait after a commit that failed
	landed   chan struct{} // poked when a write of rounds has ended
	greeted  chan struct{} // closed when OnAssigned has returned; nothing is read before
	ticks    chan tick     // the latest look at the stream

	mu      sync.Mutex // never held over a call of user code or of the server
	live    bool       // owned, as far as is known
	lostErr error      // why it is not any more
	gen     uint32     // grows when Seek or a policy moves the partition; what was handed out before does not count then

	// Reading.
	id      StreamID // of the stream that pos counts in
	known   bool     // id and pos are verified, or were in the offset
	pos     uint64   // last sequence taken in
	clean   uint64   // everything of the partition up to here was taken in
	left    uint64   // messages that were to come after pos
	blind   bool     // nothing is asked for, so that messages may come and go unnoticed
	edge    uint64   // first sequence that may have been removed just before it was read; 0: none
	settled uint64   // edges of the shared feed up to here are not this partition's
	doubt   doubt    // whether the stream has lost its end, see identity.go
	feed    *feed    // nil while there is none
	feedGen uint32   // of the deliveries that count
	hole    uint64   // the shared feed has passed this sequence without taking it in; 0: none
	attach  uint32   // generation of the shared feed whose deliveries count; 0: none
	counted bool     // its buffer counts towards the shared feed's
	shared  *shared  // reads for this partition too; nil: it has a feed of its own
	// sharedErr is why the shared feed brings nothing.
	sharedErr error
	lagSeen   uint64    // as the server said, where only it knows
	probed    time.Time // when it did; of the reading goroutine
	// At the last look it was held back, and this was stored; of the reading goroutine.
	stuck   bool
	stuckAt uint64

	// Handing out.
	buf     []Message // from head on: not handed out
	head    int
	bytes   int
	avgSize int
	handed  []uint64 // sequences handed out and not acknowledged
	taken   uint64   // highest sequence that was ever handed out
	paused  bool
	ending  bool // to be given back: nothing more is handed out
	busy    bool // a handler of Process has it
	stopped error
	idle    chan struct{} // closed when no handler has it and nobody may take it any more; nil: nobody waits
	inhand  func()        // cancels the handler that has it; nil: none
	delayed bool          // waits before the message at the front is tried again
	trouble trouble

	seek *seekCall

	// Committing.
	acked   uint64
	saved   Offset // what is stored
	force   bool   // store even what is not ahead
	pending int    // acknowledged and not stored
	waiters []waiter
	flight  *flight // the write under way of rounds; nil: none
	alone   bool    // the handler's goroutine writes, and rounds does not
	owed    *Offset // OnCommitted is to be called with it before anything else is stored
	// It is on a list of rounds.
	listed, listedUrgent bool
}

// waiter waits for a sequence to be stored.
type waiter struct {
	seq  uint64
	done chan error
}

func newRun(r *Reader, part int, o types.Ownership) *run {
	x := &run{
		r: r, part: part, owner: o, live: true,
		ended: make(chan struct{}), wakeRead: make(chan struct{}, 1), wakeSave: make(chan struct{}, 1), ticks: make(chan tick, 1),
		hurry: make(chan struct{}, 1), landed: make(chan struct{}, 1), greeted: make(chan struct{}),
	}
	x.stream, x.subject = r.cfg.resolver(part)
	return x
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// adopt begins at the offset that was claimed.
func (x *run) adopt(o Offset) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.saved = o
	x.id, x.known = o.Stream, !o.Stream.IsZero()
	x.pos, x.clean, x.acked, x.taken = o.Sequence, o.Sequence, o.Sequence, o.Sequence
}

// push takes a message in. It is called in order by a feed of this partition's own; gen tells whether that feed still counts.
func (x *run) push(m *nats.Msg, meta metadata, gen uint32) {
	x.mu.Lock()
	if x.feedGen != gen || meta.streamSeq <= x.pos {
		x.mu.Unlock()
		return
	}
	first := x.append(m, meta)
	healed := false
	if x.hole > 0 && x.pos >= x.hole {
		x.hole, x.settled, healed = 0, x.pos, true
		x.count(true)
	}
	x.mu.Unlock()
	if first {
		x.r.enqueue(x)
	}
	if healed {
		poke(x.wakeRead)
	}
}

// pushShared takes a message in that the shared feed has delivered. Where there is no room the message is passed over; a feed
// of the partition's own brings it later.
func (x *run) pushShared(m *nats.Msg, meta metadata, c *course, limit room) {
	x.mu.Lock()
	if x.attach != c.generation || meta.streamSeq <= x.pos {
		x.mu.Unlock()
		return
	}
	if x.hole > 0 || x.held() >= limit.capacity || x.bytes >= limit.bytes {
		opened := x.hole == 0
		if opened {
			x.heed(c.noted(), c.generation)
			x.clean = max(x.clean, meta.streamSeq-1) // gaps are noted by the feed's course, here as well
		}
		x.hole, x.left = meta.streamSeq, max(x.left, 1)
		x.count(false)
		x.mu.Unlock()
		if opened {
			poke(x.wakeRead)
		}
		return
	}
	x.clean = max(x.clean, meta.streamSeq-1)
	first := x.append(m, meta)
	x.mu.Unlock()
	if first {
		x.r.enqueue(x)
	}
}

// append adds a message to the buffer and reports whether it is the only one. Held: mu.
func (x *run) append(m *nats.Msg, meta metadata) bool {
	if x.edge == 0 && meta.streamSeq > x.clean+1 && (x.left > 0 || x.blind) {
		x.edge = x.clean + 1
	}
	x.blind = false
	x.pos, x.clean, x.left = meta.streamSeq, meta.streamSeq, meta.pending
	x.doubt.seq, x.doubt.stored = meta.streamSeq, meta.stored
	if x.head == len(x.buf) {
		x.buf, x.head = x.buf[:0], 0
	}
	if x.head > 0 && x.head >= len(x.buf)/2 && len(x.buf) == cap(x.buf) { // else it grew for as long as it is never empty
		n := copy(x.buf, x.buf[x.head:])
		clear(x.buf[n:])
		x.buf, x.head = x.buf[:n], 0
	}
	x.buf = append(x.buf, Message{
		Stream: x.stream, Subject: m.Subject, Partition: x.part, Sequence: meta.streamSeq, Epoch: x.owner.Epoch,
		Timestamp: time.Unix(0, meta.stored), Headers: m.Header, Data: m.Data, run: x, gen: x.gen,
	})
	size := sizeOf(m)
	x.bytes += size
	if x.avgSize < size/8 || x.avgSize == 0 {
		x.avgSize = size
	} else {
		x.avgSize += (size - x.avgSize) / 8
	}
	if x.counted {
		x.shared.used.Add(1)
	}
	return len(x.buf)-x.head == 1
}

func sizeOf(m *nats.Msg) int { return len(m.Data) + len(m.Subject) + 64*len(m.Header) + 100 }

func messageSize(m *Message) int { return len(m.Data) + len(m.Subject) + 64*len(m.Headers) + 100 }

// held returns how many messages are in the buffer. Held: mu.
func (x *run) held() int { return len(x.buf) - x.head }

// count makes the buffer count towards the shared feed's, or not. Held: mu.
func (x *run) count(on bool) {
	if x.shared == nil || x.counted == on {
		return
	}
	x.counted = on
	if on {
		x.shared.used.Add(int64(x.held()))
		x.shared.counted.Add(1)
	} else {
		x.shared.used.Add(-int64(x.held()))
		x.shared.counted.Add(-1)
	}
}

// space says what a feed of this partition's own may have under way.
func (x *run) space() room {
	s := x.r.share()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.paused || x.ending || x.stopped != nil || !x.live {
		return room{}
	}
	free := room{messages: s.capacity - x.held(), capacity: s.capacity, bytes: max(s.bytes-x.bytes, 1), volume: s.bytes, size: x.avgSize}
	if x.held() > 0 && x.bytes >= s.bytes {
		free.messages = 0
	}
	return free
}

// take hands out at most n messages, in order, and appends them to dst. more reports whether there are others.
func (x *run) take(dst []Message, n int) (out []Message, more bool) {
	x.mu.Lock()
	if !x.takeable() {
		x.mu.Unlock()
		return dst, false
	}
	n = min(n, x.held())
	for i := x.head; i < x.head+n; i++ {
		m := &x.buf[i]
		x.bytes -= messageSize(m)
		x.handed = append(x.handed, m.Sequence)
		dst = append(dst, *m)
		*m = Message{}
	}
	x.head += n
	x.taken = max(x.taken, x.handed[len(x.handed)-1])
	if x.counted {
		x.shared.used.Add(-int64(n))
	}
	more = x.held() > 0
	x.refillAndUnlock()
	return dst, more
}

// refillAndUnlock asks for more after something was taken out. Held: mu, which it unlocks.
func (x *run) refillAndUnlock() {
	f, sh, drained := x.feed, x.shared, x.hole > 0 && x.feed == nil
	x.mu.Unlock()
	switch {
	case f != nil:
		f.request()
	case drained:
		poke(x.wakeRead)
	case sh != nil:
		sh.request()
	}
}

// takeable reports whether something may be handed out. Held: mu.
func (x *run) takeable() bool {
	return x.live && !x.paused && !x.ending && x.stopped == nil && !x.busy && !x.delayed && x.seek == nil && x.held() > 0 && !x.heldBack()
}

// clear forgets everything that was read or handed out and goes on at pos. Held: mu.
func (x *run) clear(pos uint64) {
	x.count(false)
	x.buf, x.head, x.bytes = nil, 0, 0
	x.handed = nil
	x.gen++
	x.feedGen++
	x.attach, x.hole = 0, 0
	x.pos, x.clean, x.taken, x.acked = pos, pos, pos, pos
	x.left, x.edge, x.settled, x.blind = 0, 0, pos, false
	x.doubt = doubt{}
	x.trouble, x.delayed = trouble{}, false
	x.pending = 0
	for _, w := range x.waiters {
		w.done <- ErrSeeked
	}
	x.waiters = nil
}

// ack records that everything up to the sequence has been processed. It reports whether anything is to be stored.
func (x *run) ack(seq uint64, gen uint32, anyGen bool, wait bool) (done chan error, err error) {
	x.mu.Lock()
	held := x.held()
	done, err = x.ackLocked(seq, gen, anyGen, wait)
	if x.held() == held {
		x.mu.Unlock()
	} else {
		x.refillAndUnlock()
	}
	return done, err
}

// ackLocked is ack. Held: mu.
func (x *run) ackLocked(seq uint64, gen uint32, anyGen bool, wait bool) (done chan error, err error) {
	switch {
	case !x.live:
		return nil, x.lostErr
	case !anyGen && gen != x.gen:
		return nil, ErrSeeked
	case seq > x.taken:
		return nil, ErrNeverDelivered
	}
	if seq > x.acked {
		n := 0
		for n < len(x.handed) && x.handed[n] <= seq {
			n++
		}
		x.handed = x.handed[:copy(x.handed, x.handed[n:])]
		for ; x.held() > 0 && x.buf[x.head].Sequence <= seq; n++ { // was handed out and given back
			x.dropFront()
		}
		x.acked = seq
		before := x.pending
		x.pending += max(n, 1)
		if before == 0 || before < x.r.cfg.commitMsgs && x.pending >= x.r.cfg.commitMsgs {
			x.note()
		}
	}
	if wait && x.saved.Sequence < seq {
		done = make(chan error, 1)
		x.waiters = append(x.waiters, waiter{seq, done})
		x.note()
	}
	return done, nil
}

// lose ends the ownership for everybody who still holds something of it. The first error counts.
func (x *run) lose(err error) { x.loseIf(err, func() bool { return true }) }

// loseStored is lose, unless something was acknowledged that is not stored.
func (x *run) loseStored(err error) bool {
	return x.loseIf(err, func() bool { return len(x.waiters) == 0 && x.acked == x.saved.Sequence })
}

// loseIf is lose if the condition holds, which is asked under mu.
func (x *run) loseIf(err error, condition func() bool) bool {
	x.mu.Lock()
	if x.live && !condition() {
		x.mu.Unlock()
		return false
	}
	if x.live {
		x.live, x.lostErr = false, err
		x.count(false)
		x.buf, x.head, x.bytes, x.handed = nil, 0, 0, nil
	}
	for _, w := range x.waiters {
		w.done <- x.lostErr
	}
	x.waiters = nil
	cancel := x.inhand
	x.mu.Unlock()
	x.r.remove(x) // now, however long a handler takes to return
	if cancel != nil {
		cancel()
	}
	return true
}

// lag returns how many messages of the partition are known to be unprocessed. Held: mu.
func (x *run) lag() uint64 {
	n := uint64(x.held() + len(x.handed))
	if x.shared == nil {
		n += x.left
	}
	return max(n, x.lagSeen)
}
