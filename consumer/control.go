package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/kv"
)

// Pause stops handing out messages of the partitions, or of all where none is named, until Resume. Ownership stays, acknowledgements go on
// working, and nothing is lost or reordered; what was handed out before and is not acknowledged comes again after Resume only. A partition
// stays paused in this Reader when it goes elsewhere and comes back.
func (r *Reader) Pause(partitions ...int) {
	r.setPaused(partitions, true)
}

// Resume undoes Pause for the partitions, or for all where none is named. A message that is being repeated keeps its attempts and waits.
// It also starts partitions that were stopped: after a message
// that could not be processed by trying that message again; after messages that have expired by passing them over; after a changed
// stream at the beginning of the one that is there.
func (r *Reader) Resume(partitions ...int) {
	r.setPaused(partitions, false)
}

func (r *Reader) setPaused(partitions []int, on bool) {
	if len(partitions) == 0 {
		partitions = r.all()
	}
	var runs []*run
	r.mu.Lock()
	for _, p := range partitions {
		if on {
			r.paused[p] = true
		} else {
			delete(r.paused, p)
		}
		if x := r.runs[p]; x != nil {
			x.mu.Lock() // in here, so that Pause and Resume leave the same in both places
			x.paused = on
			x.mu.Unlock()
			runs = append(runs, x)
		}
	}
	r.mu.Unlock()
	for _, x := range runs {
		if !on {
			x.restart()
			r.enqueue(x)
		}
		poke(x.wakeRead)
	}
}

// all returns the numbers of all partitions that this Reader knows of.
func (r *Reader) all() (numbers []int) {
	for p := range r.parts {
		numbers = append(numbers, p)
	}
	for _, p := range r.Assigned() {
		if p >= r.parts {
			numbers = append(numbers, p)
		}
	}
	return numbers
}

// stop ends the handing out of the partition because of err. A stop by a message that could not be processed, which goes on reading, gives way to one by
// the stream, which does not: Resume is to mend that first.
func (x *run) stop(err error) {
	x.mu.Lock()
	if !x.live || x.stopped != nil && (!errors.Is(x.stopped, ErrPoison) || errors.Is(err, ErrPoison)) {
		x.mu.Unlock()
		return
	}
	x.stopped = err
	x.mu.Unlock()
	r := x.r
	r.cfg.log.Error("partition stopped", "partition", x.part, "error", err)
	if hook := r.cfg.hooks.OnStopped; hook != nil {
		guard(r.cfg.log, "OnStopped", func() { hook(x.part, err) })
	}
	r.mu.Lock()
	r.stops = append(r.stops, err)
	if most := 4 * r.parts; len(r.stops) > most { // nobody asks for them
		r.stops = r.stops[1:]
	}
	r.mu.Unlock()
	poke(r.wake)
}

// restart ends a stop.
func (x *run) restart() {
	x.mu.Lock()
	err := x.stopped
	if err != nil { // else what is repeated goes on as before
		x.stopped = nil
		x.trouble, x.delayed = trouble{}, false
	}
	x.mu.Unlock()
	switch stopped := err.(type) { // itself: what a PoisonError wraps is its handler's, who may read other streams
	case *ExpiredError:
		x.passOver(stopped)
	case *StreamChangedError:
		x.mu.Lock()
		if x.seek == nil {
			x.seek = &seekCall{to: Earliest(), done: make(chan error, 1)}
		}
		x.mu.Unlock()
	}
}

// Committed returns the stored offset of a partition, owned or not. For a partition that nobody has owned yet it is the zero Offset. For one that this
// Reader owns it is what it stored last; for another it is read from the server, and may be older than the last one stored.
func (r *Reader) Committed(ctx context.Context, partition int) (Offset, error) {
	if err := r.usable(ctx); err != nil {
		return Offset{}, err
	}
	if x, err := r.find(partition); err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		o := x.saved
		o.Partition, o.Epoch, o.Worker = partition, x.owner.Epoch, x.owner.Holder.Worker
		return o, nil
	}
	if partition < 0 || partition >= r.parts {
		return Offset{}, fmt.Errorf("%w: partition %d: there are %d", ErrNotAssigned, partition, r.parts)
	}
	ctx, cancel := r.call(ctx)
	defer cancel()
	e, err := r.offsets.Load().Get(ctx, offsetKey(r.group, partition))
	if errors.Is(err, kv.ErrNotFound) || err == nil && e.Absent() {
		return Offset{Partition: partition}, nil
	}
	if err != nil {
		return Offset{}, err
	}
	s, err := decodeOffset(e.Value)
	if err != nil {
		err = repair(err, r.cfg.offsets, e.Key)
	}
	return s.Offset, err
}

// Lag asks the server how many messages of a partition follow its stored offset. It works for any partition; each call makes a short-lived
// consumer, so for a regular look use [Reader.Stats] or [Metrics].
func (r *Reader) Lag(ctx context.Context, partition int) (uint64, error) {
	o, err := r.Committed(ctx, partition)
	if err != nil {
		return 0, err
	}
	x := &run{part: partition}
	x.stream, x.subject = r.cfg.resolver(partition)
	return r.pendingFrom(ctx, x, o.Sequence+1)
}

// pendingFrom returns how many messages of the partition there are from a sequence on.
func (r *Reader) pendingFrom(ctx context.Context, x *run, seq uint64) (uint64, error) {
	info, err := r.probe(ctx, x, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq})
	if err != nil {
		return 0, err
	}
	return info.NumPending, nil
}

// PartitionStats is what one owned partition does.
type PartitionStats struct {
	Partition int
	Epoch     int64
	Stream    string
	Subject   string
	// Buffered and BufferedBytes are held in memory and not handed out; Unacknowledged was handed out.
	Buffered       int
	BufferedBytes  int
	Unacknowledged int
	// Acknowledged and Committed are sequences: what was acknowledged, and what of it is stored.
	Acknowledged uint64
	Committed    uint64
	// Unstored is how many messages were acknowledged and are not covered by the stored offset. HeldBack: they are so many that nothing is handed out
	// until some are, see [WithCommit].
	Unstored int
	HeldBack bool
	// Lag is how many messages are known to be unprocessed. Where a stream's partitions are read together, it counts what is in memory only.
	Lag    uint64
	Paused bool
	// Stopped is why nothing is handed out; nil where it is not stopped.
	Stopped error
}

// Stats is what a Reader does.
type Stats struct {
	// Partitions are the owned ones, by number.
	Partitions []PartitionStats
	// Unreadable are partitions, by ID, that the group has given to this Reader and that it cannot read, with the reason: it was made with
	// fewer partitions than the Reader that leads.
	Unreadable map[string]error
}

// Stats returns what the Reader does. It is a copy, made without asking the server.
func (r *Reader) Stats() Stats {
	var s Stats
	for _, x := range r.owning() {
		x.mu.Lock()
		s.Partitions = append(s.Partitions, PartitionStats{
			Partition: x.part, Epoch: x.owner.Epoch, Stream: x.stream, Subject: x.subject,
			Buffered: x.held(), BufferedBytes: x.bytes, Unacknowledged: len(x.handed),
			Acknowledged: x.acked, Committed: x.saved.Sequence, Lag: x.lag(), Paused: x.paused, Stopped: x.stopped,
			Unstored: x.pending, HeldBack: x.heldBack(),
		})
		x.mu.Unlock()
	}
	r.mu.Lock()
	s.Unreadable = maps.Clone(r.alien)
	r.mu.Unlock()
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}

// Assigned returns the numbers of the partitions that this Reader owns and has claimed the offsets of, sorted.
func (r *Reader) Assigned() []int {
	owning := r.owning()
	out := make([]int, len(owning))
	for i, x := range owning {
		out[i] = x.part
	}
	slices.Sort(out)
	return out
}
