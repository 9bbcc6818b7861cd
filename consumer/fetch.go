package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/partigo/parti"
)

// Fetch returns up to maxMessages messages of the partitions that this Reader owns: of each partition in order, and of no more of them than
// maxMessages permits. As long as anything that Fetch has returned is not acknowledged and still owned, Fetch returns just that again
// (at most maxMessages of it, in the same order) and nothing new.
//
// Where nothing is there it waits for a first message, for as long as [WithFetchWait] says, and then returns none and no error. A partition
// that was stopped (poison, changed stream, expired messages) is reported once, by the error of one call; further calls return the
// messages of the others.
//
// Concurrent calls take turns, so they return the same messages. To work on several partitions at a time use [Reader.Process].
func (r *Reader) Fetch(ctx context.Context, maxMessages int) ([]Message, error) {
	if maxMessages < 1 {
		return nil, fmt.Errorf("%w: Fetch of %d messages: ask for at least one", ErrInvalidConfig, maxMessages)
	}
	if err := r.usable(ctx); err != nil {
		return nil, err
	}
	if err := r.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-r.turn }()
	if again := r.unacknowledged(maxMessages); len(again) > 0 {
		return again, nil
	}
	r.takeBack() // of partitions that are paused or stopped: first of all when they go on
	got, err := r.collect(ctx, maxMessages)
	if err != nil {
		return nil, err
	}
	r.last = got
	r.cfg.metrics.Fetched(len(got))
	return append([]Message(nil), got...), nil
}

// takeTurn makes the caller the only one who hands messages out.
func (r *Reader) takeTurn(ctx context.Context) error {
	if r.busy.Load() {
		return ErrInUse
	}
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-r.closing:
		return r.closedErr()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unacknowledged returns what is left of the last batch: what is neither acknowledged, nor another's by now, nor paused.
func (r *Reader) unacknowledged(n int) []Message {
	var again []Message
	kept := r.last[:0]
	for _, m := range r.last {
		x := m.run
		x.mu.Lock()
		counts := x.live && m.gen == x.gen && m.Sequence > x.acked
		waits := x.paused || x.ending || x.stopped != nil
		x.mu.Unlock()
		if counts {
			kept = append(kept, m)
		}
		if counts && !waits && len(again) < n {
			again = append(again, m)
		}
	}
	clear(r.last[len(kept):])
	r.last = kept
	return again
}

// collect takes new messages. Held: turn.
func (r *Reader) collect(ctx context.Context, n int) ([]Message, error) {
	var got []Message
	wait := time.NewTimer(r.cfg.fetchWait)
	defer wait.Stop()
	for {
		if err := r.takeStop(); err != nil && len(got) == 0 {
			return nil, err
		} else if err != nil {
			r.putStop(err)
		}
		before := len(got)
		got = r.gather(got, n)
		if len(got) >= n {
			return got, nil
		}
		if before == 0 && len(got) > 0 {
			wait.Reset(r.cfg.fetchBatch)
		}
		select {
		case <-r.wake:
		case <-wait.C:
			return got, nil
		case <-ctx.Done():
			if len(got) > 0 {
				return got, nil
			}
			return nil, ctx.Err()
		case <-r.closing:
			if len(got) > 0 { // not acknowledged: the next owner hands them out again
				return got, nil
			}
			return nil, r.closedErr()
		}
	}
}

// fewer is how many messages of one partition Fetch takes at least, if that is no more than a quarter of what was asked for: what comes of few
// partitions is acknowledged by few writes. The others have their turn in the next calls.
const fewer = 32

// gather takes what is there, from each partition in turn.
func (r *Reader) gather(got []Message, n int) []Message {
	for len(got) < n {
		x, others := r.next()
		if x == nil {
			break
		}
		fair := max(1, (n-len(got))/(others+1), min(n/4, fewer))
		var more bool
		if got, more = x.take(got, fair); more {
			r.enqueue(x)
		}
	}
	return got
}

// takeStop returns the error of a partition that was stopped, once.
func (r *Reader) takeStop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stops) == 0 {
		return nil
	}
	err := r.stops[0]
	r.stops = r.stops[1:]
	return err
}

func (r *Reader) putStop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append([]error{err}, r.stops...)
}

// Ack acknowledges messages: of each partition that occurs, everything up to the highest sequence given. It returns when the offsets are
// stored. Where a partition has moved on, its error wraps [ErrPartitionLost] and its offset is not changed; the other partitions'
// offsets are stored regardless, and all errors are joined.
//
// A message of another Reader is refused ([ErrNotAssigned]).
//
// A message that the caller made up itself, or has stored in between, counts for the present ownership if its Epoch is 0 or that ownership's; any other is
// refused ([ErrPartitionLost]). Partition and Sequence are enough.
//
// In [Hooks.OnCommitted] Ack would wait for that hook's own end: use AckLater there.
//
// When ctx ends first, the acknowledgement stays in force and is stored within the delay of [WithCommit]; it is not known whether it was.
func (r *Reader) Ack(ctx context.Context, messages ...Message) error {
	waits, err := r.acknowledge(messages, true)
	errs := []error{err}
	for _, w := range waits {
		select {
		case err := <-w:
			errs = append(errs, r.closedOr(err))
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// AckLater acknowledges like Ack and does not wait: the offsets are stored within the delay of [WithCommit]. A loss that is not known yet
// shows in a later call, or in the hook OnLost.
func (r *Reader) AckLater(messages ...Message) error {
	_, err := r.acknowledge(messages, false)
	return err
}

func (r *Reader) acknowledge(messages []Message, wait bool) (waits []chan error, err error) {
	if r.isClosing() && r.cause != nil { // nothing can be stored any more
		return nil, r.closedErr()
	}
	highest := map[ownership]uint64{}
	var errs []error
	for _, m := range messages {
		if m.run != nil && m.run.r != r {
			errs = append(errs, r.closedOr(fmt.Errorf("%w: partition %d, sequence %d: another Reader has handed the message out, so only that can acknowledge it",
				ErrNotAssigned, m.Partition, m.Sequence)))
			continue
		}
		o := ownership{m.Partition, m.run, m.gen, m.Epoch}
		highest[o] = max(highest[o], m.Sequence)
	}
	for o, seq := range highest {
		x := o.run
		if x == nil {
			if x, err = r.find(o.part); err != nil {
				errs = append(errs, r.closedOr(err))
				continue
			}
		}
		if o.epoch != 0 && o.epoch != x.owner.Epoch {
			errs = append(errs, r.closedOr(fmt.Errorf("sequence %d: %w", seq, &PartitionLostError{Partition: o.part, Epoch: o.epoch})))
			continue
		}
		w, err := x.ack(seq, o.gen, o.run == nil, wait)
		if err != nil {
			errs = append(errs, r.closedOr(fmt.Errorf("partition %d, sequence %d: %w", o.part, seq, err)))
		}
		if w != nil {
			waits = append(waits, w)
		}
	}
	return waits, errors.Join(errs...)
}

// ownership is under what a message was handed out: each has an answer of its own. Without a run the caller has made the message up.
type ownership struct {
	part int
	run  *run
	gen  uint32
	// As the message says; 0: the present one.
	epoch int64
}

// closedOr adds to an error that the Reader was closed, where it was.
func (r *Reader) closedOr(err error) error {
	switch {
	case err == nil:
	case r.isClosing():
		return fmt.Errorf("%w: %w", r.closedErr(), err)
	case r.nc.IsClosed(): // the end is on its way
		return fmt.Errorf("%w: %w: %w", ErrReaderClosed, parti.ErrConnectionClosed, err)
	}
	return err
}

// All returns an iterator over the messages, one at a time, of each partition in order. A message is acknowledged, as by AckLater, when the
// loop asks for the next one; the one at which the loop is left is not, and comes again unless it is acknowledged explicitly. A partition that is
// given back does not wait for the loop, as it does for a handler of Process: the next owner may be handed the message too that the loop has in hand.
//
// An error of a partition that was stopped is yielded once, with the zero Message, and the loop goes on with the others. Any other
// error is the last: [ErrReaderClosed], [ErrInUse], or that of ctx.
func (r *Reader) All(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if err := r.reserve(ctx); err != nil {
			yield(Message{}, err)
			return
		}
		defer r.unreserve()
		for {
			if ctx.Err() != nil {
				yield(Message{}, ctx.Err())
				return
			}
			if x, _ := r.next(); x != nil {
				if !r.some(ctx, x, yield) {
					return
				}
				continue
			}
			if err := r.takeStop(); err != nil {
				if !yield(Message{}, err) {
					return
				}
				continue
			}
			select {
			case <-r.wake:
			case <-ctx.Done():
			case <-r.closing:
				yield(Message{}, r.closedErr())
				return
			}
		}
	}
}

// quantum is how many messages of one partition are taken before the next one has its turn.
const quantum = 64

// some yields messages of one partition, and reports whether to go on.
func (r *Reader) some(ctx context.Context, x *run, yield func(Message, error) bool) bool {
	var one [1]Message
	for range quantum {
		if ctx.Err() != nil {
			break
		}
		got, more := x.take(one[:0], 1)
		if len(got) == 0 {
			return true
		}
		r.cfg.metrics.Fetched(1)
		if !x.yieldOne(got, yield) {
			return false
		}
		_, _ = x.ack(got[0].Sequence, got[0].gen, false, false) // lost meanwhile: the next owner repeats it
		if !more {
			return true
		}
	}
	r.enqueue(x)
	return true
}

// yieldOne yields a message, and takes it back when the loop is left, by a panic too.
func (x *run) yieldOne(got []Message, yield func(Message, error) bool) (next bool) {
	defer func() {
		if !next {
			x.giveBack(got)
		}
	}()
	return yield(got[0], nil)
}

// reserve makes Process or All the only one who hands messages out, until unreserve. What Fetch has handed out and is not acknowledged
// is handed out again.
func (r *Reader) reserve(ctx context.Context) error {
	if err := r.usable(ctx); err != nil {
		return err
	}
	if !r.busy.CompareAndSwap(false, true) {
		return ErrInUse
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		r.busy.Store(false)
		return ctx.Err()
	case <-r.closing:
		r.busy.Store(false)
		return r.closedErr()
	}
	r.takeBack()
	return nil
}

// takeBack returns to its partitions what Fetch has handed out and is not acknowledged. Held: turn.
func (r *Reader) takeBack() {
	byRun := map[*run][]Message{}
	for _, m := range r.last {
		byRun[m.run] = append(byRun[m.run], m)
	}
	r.last = nil
	for x, ms := range byRun {
		x.giveBack(ms)
	}
}

func (r *Reader) unreserve() {
	<-r.turn
	r.busy.Store(false)
	poke(r.wake)
}
