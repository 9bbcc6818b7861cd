package consumer

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/kv"
)

const (
	// unhurried is how many partitions of a Reader may have something to be stored before its rounds become rarer, and rarest by how many times
	// they do at most.
	unhurried, rarest = 20, 10
	// maxFlights bounds the writes of a Reader that are under way.
	maxFlights = 256
)

// rounds stores the offsets of a Reader's partitions: all that have something to be stored at once in a round, without waiting for
// one answer before the next write, so that they share calls of the system and wake nobody in between. A write that does not
// succeed at once, whatever the reason, is left to the partition's own goroutine, which finds out what is stored (commit.go).
//
// Its goroutine sends; the callback of its subscription takes the answers in.
type rounds struct {
	r     *Reader
	inbox string // what answers come to, with the number of the write behind
	sub   *nats.Subscription
	wake  chan struct{}

	mu      sync.Mutex        // taken under a run's lock; nothing is called under it
	late    map[*run]struct{} // with something for the next round, and not urgent
	since   time.Time         // when the oldest of that was acknowledged
	urgent  []*run            // with something that does not wait for the round
	flights map[uint64]*flight
	number  uint64 // of the last write
}

// flight is a write under way. The run's writer belongs to it.
type flight struct {
	x *run
	snapshot
}

// snapshot is what a commit stores.
type snapshot struct {
	o       Offset
	pending int
	gen     uint32
	began   time.Time
}

func newRounds(r *Reader) *rounds {
	return &rounds{r: r, wake: make(chan struct{}, 1), late: map[*run]struct{}{}, flights: map[uint64]*flight{}}
}

// begin listens for answers. It is called before anything is owned.
func (s *rounds) begin() (err error) {
	s.inbox = s.r.nc.NewInbox() + "."
	s.sub, err = s.r.nc.Subscribe(s.inbox+"*", s.answered)
	return err
}

// add puts a partition on a list.
func (s *rounds) add(x *run, urgent bool) {
	s.mu.Lock()
	first := false
	if urgent {
		delete(s.late, x) // one that is written anyway is none of those that the delay is for
		s.urgent = append(s.urgent, x)
		first = len(s.urgent) == 1
	} else {
		if first = len(s.late) == 0; first {
			s.since = time.Now()
		}
		s.late[x] = struct{}{}
	}
	s.mu.Unlock()
	if first {
		poke(s.wake)
	}
}

// delay is how long the oldest acknowledgement waits for its round, where n partitions have some: a thousand partitions that are read slowly
// would otherwise make one write for every few messages, which costs more than reading them.
func (s *rounds) delay(n int) time.Duration {
	return s.r.cfg.commitEvery / unhurried * time.Duration(min(max(n, unhurried), unhurried*rarest))
}

// loop sends what is due until ctx ends: when nothing is owned any more, or nobody waits for the rest.
func (s *rounds) loop(ctx context.Context) {
	defer func() { _ = s.sub.Unsubscribe() }() // fails on a closed connection only
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	conn, check := s.r.connection(), time.Now()
	for {
		now := time.Now()
		if now.After(check) {
			s.expire(now.Add(-requestTimeout))
			check = now.Add(requestTimeout / 4)
		}
		due, in := s.due(now)
		for _, x := range due {
			s.send(x)
		}
		if len(due) > 0 {
			continue // sending takes time
		}
		timer.Reset(in)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		case <-conn.Done(): // what was sent on it is not answered any more
			conn = s.r.connection()
			s.expire(time.Now())
		}
	}
}

// due takes what is to be sent now from the lists, or says when to look again.
func (s *rounds) due(now time.Time) (due []*run, in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in = time.Hour
	if len(s.flights) > 0 {
		in = requestTimeout / 4
	}
	if len(s.late) > 0 {
		left := s.since.Add(s.delay(len(s.late))).Sub(now)
		if left <= 0 {
			s.urgent = slices.AppendSeq(s.urgent, maps.Keys(s.late))
			clear(s.late)
		} else {
			in = min(in, left)
		}
	}
	n := min(len(s.urgent), maxFlights-len(s.flights))
	if n < min(len(s.urgent), maxFlights/4) { // better a few more at a time; answers wake
		return nil, in
	}
	due = append(due, s.urgent[:n]...)
	s.urgent = s.urgent[:copy(s.urgent, s.urgent[n:])]
	return due, in
}

// send sends a partition's offset, if it is not sent already.
func (s *rounds) send(x *run) {
	x.mu.Lock()
	x.listed, x.listedUrgent = false, false
	if x.alone || x.flight != nil || x.owed != nil || !x.live {
		x.mu.Unlock() // whoever ends that looks again
		return
	}
	snap, needed := x.snapshot()
	if !needed {
		freed := x.settle(snap)
		x.mu.Unlock()
		if freed {
			s.r.enqueue(x)
		}
		return
	}
	f := &flight{x, snap}
	x.flight = f
	x.mu.Unlock()
	if !s.r.manager.Owns(x.owner.Partition) { // the lease has run out, and the end of the ownership is on its way
		s.over(f, 0, false)
		return
	}
	msg, err := x.writer.next(f.o)
	if err != nil {
		s.over(f, 0, false)
		return
	}
	s.mu.Lock()
	s.number++
	number := s.number
	s.flights[number] = f
	s.mu.Unlock()
	msg.Reply = s.inbox + strconv.FormatUint(number, 10)
	if s.r.nc.PublishMsg(msg) != nil && s.take(number) != nil {
		s.over(f, 0, false)
	}
}

// take takes a write off the list of those under way; nil: somebody else has.
func (s *rounds) take(number uint64) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[number]
	delete(s.flights, number)
	if len(s.urgent) > 0 {
		poke(s.wake)
	}
	return f
}

// answered is the subscription's callback.
func (s *rounds) answered(m *nats.Msg) {
	number, ok := digits(m.Subject[len(s.inbox):])
	if !ok {
		return
	}
	if f := s.take(number); f != nil {
		rev, stored := kv.PutAnswer(m)
		s.over(f, rev, stored)
	}
}

// expire gives up the writes that began before a time: whether they were carried out is not known.
func (s *rounds) expire(before time.Time) {
	var gone []*flight
	s.mu.Lock()
	for number, f := range s.flights {
		if !f.began.After(before) {
			gone = append(gone, f)
			delete(s.flights, number)
		}
	}
	s.mu.Unlock()
	for _, f := range gone {
		s.over(f, 0, false)
	}
}

// over ends a write. One that has not succeeded is the partition's own goroutine's to repeat.
func (s *rounds) over(f *flight, rev uint64, stored bool) {
	x := f.x
	if stored {
		s.r.cfg.metrics.Committed(x.part, time.Since(f.began), nil)
	}
	x.mu.Lock()
	x.flight = nil
	told, freed := true, false
	switch {
	case stored:
		x.writer.rev = rev
		freed = x.settle(f.snapshot)
		if s.r.cfg.hooks.OnCommitted != nil {
			x.owed, told = &f.o, false
		}
		x.note()
	default:
		x.alone, x.force = true, true
	}
	x.mu.Unlock()
	if freed {
		s.r.enqueue(x)
	}
	poke(x.landed)
	if !stored || !told {
		poke(x.wakeSave)
	}
}

// note puts the partition on the list where it has something to be stored. Held: mu.
func (x *run) note() {
	if x.alone || x.flight != nil || x.owed != nil {
		return // whoever ends that looks again
	}
	switch urgent := x.force || len(x.waiters) > 0 || x.pending >= x.r.cfg.commitMsgs; {
	case urgent && !x.listedUrgent:
		x.listedUrgent = true
		x.r.rounds.add(x, true)
	case !urgent && x.pending > 0 && !x.listed && !x.listedUrgent:
		x.listed = true
		x.r.rounds.add(x, false)
	}
}
