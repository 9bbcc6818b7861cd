package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/partigo/parti/internal/kv"
)

// Pause stops handing out messages of the partitions, or of all where none is named, until Resume. Ownership stays, acknowledgements go on
// working, and nothing is lost or reordered; what was handed out before and is not acknowledged comes again after Resume only. A partition
// stays paused in this Reader when it goes elsewhere and comes back.
func (r *Reader) Pause(partitions ...int) {
	r.setPaused(partitions, true)
}

// Resume undoes Pause for the partitions, or for all where none is named. It also starts partitions that were stopped: after a message
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

// stop ends the handing out of the partition because of err.
func (x *run) stop(err error) {
	x.mu.Lock()
	if x.stopped != nil || !x.live {
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
	x.stopped = nil
	x.trouble, x.delayed = trouble{}, false
	x.mu.Unlock()
	var expired *ExpiredError
	var changed *StreamChangedError
	switch {
	case errors.As(err, &expired):
		x.passOver(expired)
	case errors.As(err, &changed):
		x.mu.Lock()
		if x.seek == nil {
			x.seek = &seekCall{to: Earliest(), done: make(chan error, 1)}
		}
		x.mu.Unlock()
	}
}

// seekRecheck is how often a Seek looks whether the one before it has ended.
const seekRecheck = 5 * time.Millisecond

// seekCall is a Seek that the reading goroutine carries out.
type seekCall struct {
	to    Position
	done  chan error
	moved bool // too late to withdraw it; guarded by the run's lock
}

// Seek makes the partition go on at the position, forwards or backwards, and returns when that is stored as its offset. Positions beyond either
// end of the stream count as that end, see [Position]. It waits for a handler of Process that has the partition. What was handed out
// before does not count any more: its acknowledgement is refused with [ErrSeeked]. A stopped partition is started.
//
// The partition must be owned by this Reader ([ErrNotAssigned] otherwise), and a Seek that is under way when the partition is lost has moved
// it or not. When ctx ends before the partition was moved, it is not moved any more; when it ends later, the error is an [*UnstoredSeekError].
//
// In [Hooks.OnAssigned] Seek says where reading begins: nothing is read before that hook has returned. In a handler of Process it would wait
// for that handler's own end.
func (r *Reader) Seek(ctx context.Context, partition int, to Position) error {
	if err := r.usable(ctx); err != nil {
		return err
	}
	x, err := r.find(partition)
	if err != nil {
		return err
	}
	call := &seekCall{to: to, done: make(chan error, 1)}
	for !x.offerSeek(call) {
		if err := sleep(ctx, seekRecheck); err != nil { // another one is under way
			return err
		}
	}
	poke(x.wakeRead)
	select {
	case err := <-call.done:
		return err
	case <-x.ended:
		return x.lossCause()
	case <-ctx.Done():
		return x.withdrawSeek(call, ctx.Err())
	}
}

// withdrawSeek ends a Seek that nobody waits for any more, unless the partition has been moved. It returns what the Seek returns.
func (x *run) withdrawSeek(call *seekCall, cause error) error {
	x.mu.Lock()
	if x.seek == call {
		x.seek = nil
	}
	moved := call.moved
	x.mu.Unlock()
	poke(x.wakeRead)
	x.r.enqueue(x)
	select {
	case err := <-call.done:
		return err
	default:
	}
	if moved {
		return &UnstoredSeekError{Partition: x.part, Err: cause}
	}
	return cause
}

func (x *run) offerSeek(call *seekCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seek != nil && x.live {
		return false
	}
	x.seek = call
	return true
}

// moveIfAsked carries out a Seek. It runs on the reading goroutine, which has no feed then.
func (x *run) moveIfAsked(ctx context.Context) {
	x.mu.Lock()
	call := x.seek
	x.mu.Unlock()
	if call == nil {
		return
	}
	for x.awaits(call) {
		select {
		case <-x.wakeRead:
		case <-ctx.Done():
			return
		}
	}
	call.done <- x.moveTo(ctx, call.to, call)
	x.r.enqueue(x)
}

// awaits reports whether a Seek has to wait for a handler. One that was withdrawn has not.
func (x *run) awaits(call *seekCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.busy && x.seek == call
}

// errWithdrawn: nobody waits for the Seek any more.
var errWithdrawn = errors.New("consumer: the seek was withdrawn")

// moveTo moves the partition and returns when its new offset is stored. It runs on the reading goroutine, while no feed is open.
func (x *run) moveTo(ctx context.Context, to Position, call *seekCall) error {
	state, err := x.r.streamState(ctx, x.stream)
	var pos uint64
	if err == nil {
		pos, err = x.r.resolve(ctx, x, to, state)
	}
	stored := make(chan error, 1)
	x.mu.Lock()
	switch {
	case x.seek == call:
		x.seek = nil
	case call != nil && err == nil:
		err = errWithdrawn
	}
	if err != nil {
		x.mu.Unlock()
		return err
	}
	if call != nil {
		call.moved = true
	}
	x.clear(pos)
	x.id, x.known, x.stopped, x.force = state.id, true, nil, true
	x.waiters = append(x.waiters, waiter{pos, stored})
	x.mu.Unlock()
	poke(x.wakeSave)
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resolve returns the sequence behind which reading begins for a position.
func (r *Reader) resolve(ctx context.Context, x *run, to Position, s streamState) (uint64, error) {
	before := s.first - 1
	seq := uint64(0)
	switch to.kind {
	case earliest:
		return before, nil
	case latest:
		return s.last, nil
	case atSequence:
		seq = to.seq
	case atTime:
		info, err := r.probe(ctx, x, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &to.time})
		if err != nil {
			return 0, err
		}
		seq = info.Delivered.Stream + 1
	}
	return min(max(seq, s.first)-1, max(s.last, before)), nil
}

// probe makes a consumer for the partition just to see what the server says about it.
func (r *Reader) probe(ctx context.Context, x *run, cfg jetstream.ConsumerConfig) (*jetstream.ConsumerInfo, error) {
	select {
	case r.creations <- struct{}{}:
		defer func() { <-r.creations }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cfg.Name = "parti-" + r.group + "-probe-" + nuid.Next()
	cfg.FilterSubject, cfg.AckPolicy, cfg.MemoryStorage, cfg.Replicas = x.subject, jetstream.AckNonePolicy, true, 1
	cfg.InactiveThreshold = r.cfg.inactive
	ctx, cancel := r.call(ctx)
	defer cancel()
	defer func() { _ = r.nc.Publish(r.api+"CONSUMER.DELETE."+x.stream+"."+cfg.Name, nil) }()
	c, err := r.js.CreateConsumer(ctx, x.stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("consumer: look at stream %s: %w", x.stream, err)
	}
	return c.CachedInfo(), nil
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
