package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/partigo/parti/internal/backoff"
)

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
// it or not, and its error wraps [ErrPartitionLost]. When ctx ends before the partition was moved, it is not moved any more; when it ends
// later, the error is an [*UnstoredSeekError].
//
// In [Hooks.OnAssigned] Seek says where reading begins: nothing is read before that hook has returned. In a handler of Process, or in
// another hook, it would wait for that one's own end: call it from elsewhere.
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
		select {
		case <-x.ended:
			return r.closedOr(x.lossCause())
		default:
		}
		if err := backoff.Sleep(ctx, seekRecheck); err != nil { // another one is under way
			return err
		}
	}
	poke(x.wakeRead)
	select {
	case err := <-call.done:
		return err
	case <-x.ended: // it may wait for the caller, if that is a handler or a hook
		select {
		case err := <-call.done:
			return err
		default:
			return r.closedOr(x.lossCause())
		}
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

// moveIfAsked carries out a Seek, and one that follows it meanwhile. It runs on the reading goroutine, which has no feed then.
func (x *run) moveIfAsked(ctx context.Context) {
	for {
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
		err := x.moveTo(ctx, call.to, call)
		if err != nil && ctx.Err() != nil {
			return // the end of the ownership is the answer
		}
		call.done <- err
		x.r.enqueue(x)
	}
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
	return x.settleAt(ctx, pos, state.id)
}

// settleAt makes the partition go on behind pos of a stream, and returns when that is stored as its offset. Held: mu, which it unlocks.
func (x *run) settleAt(ctx context.Context, pos uint64, id StreamID) error {
	stored := make(chan error, 1)
	x.clear(pos)
	x.id, x.known, x.stopped, x.force = id, true, nil, true
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
	cfg.InactiveThreshold = inactive
	ctx, cancel := r.call(ctx)
	defer cancel()
	defer func() { _ = r.nc.Publish(r.api+"CONSUMER.DELETE."+x.stream+"."+cfg.Name, nil) }()
	c, err := r.js.CreateConsumer(ctx, x.stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("consumer: look at stream %s: %w", x.stream, err)
	}
	return c.CachedInfo(), nil
}
