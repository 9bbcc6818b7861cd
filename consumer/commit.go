package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/backoff"
)

// finalCommit bounds the last commit of a partition that is given back, its repetitions included.
const finalCommit = 5 * time.Second

// commitRetry and commitRetryLimit are the waits after commits that failed: the first, and the longest.
const commitRetry, commitRetryLimit = 100 * time.Millisecond, 5 * time.Second

// ownsRecheck is how often a commit looks whether the lease holds again.
const ownsRecheck = 10 * time.Millisecond

// handle runs one ownership of a partition; it is the Manager's handler. It returns when the partition has been given back: everything
// acknowledged is committed then, and nothing is committed after.
func (r *Reader) handle(ctx context.Context, o parti.Ownership) error {
	part, err := r.partitionOf(o.Partition)
	if err != nil {
		defer r.unreadable(o.Partition.ID(), err)()
		<-ctx.Done()
		return nil
	}
	if part >= r.parts {
		r.outgrown(part)
	}
	x := newRun(r, part, o)
	x.writer = r.newOffsetWriter(part, o)
	offset, err := x.writer.claim(ctx)
	if err != nil {
		r.doubtOffsets(err)
		if ctx.Err() == nil {
			r.report(part, "claim", err)
		}
		return err
	}
	r.cured(part, "claim")
	x.adopt(offset)
	r.add(x)
	r.cfg.metrics.PartitionAssigned(part, o.Epoch)
	x.greet()
	err = x.serve(ctx)
	<-x.greeted
	x.tellEnd(err)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// greet calls OnAssigned beside the run's work, which it may ask for: a Seek in it is carried out. Nothing is read before it has
// returned.
func (x *run) greet() {
	hook := x.r.cfg.hooks.OnAssigned
	if hook == nil {
		close(x.greeted)
		return
	}
	go func() {
		defer close(x.greeted)
		guard(x.r.cfg.log, "OnAssigned", func() { hook(x.part, x.owner.Epoch) })
	}()
}

// serve reads and commits until the ownership ends; the error says why, where it did not end in good order.
func (x *run) serve(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { x.readLoop(reading) })
	err := x.commitLoop(ctx)
	close(x.ended)
	stop()
	reader.Wait()
	if err == nil && errors.Is(context.Cause(ctx), parti.ErrLeaseExpired) {
		err = parti.ErrLeaseExpired
	}
	if err != nil {
		x.lose(x.lostError(err))
		x.waitIdle(context.Background(), false)
		return err
	}
	return x.giveUp()
}

// giveUp ends the ownership in good order: a handler that runs may finish its message, and what is acknowledged is stored.
func (x *run) giveUp() error {
	lease, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := x.r.afterLease(func() { // the partition is nobody's then, whatever the handler does
		cancel()
		x.lose(x.lostError(parti.ErrLeaseExpired))
	})
	defer stop()
	x.waitIdle(lease, true)
	x.mu.Lock()
	if x.live && x.held() == 0 && len(x.handed) == 0 && x.hole == 0 && x.clean > x.acked {
		x.acked = x.clean // nothing of the partition lies in between
	}
	x.mu.Unlock()
	ctx, done := context.WithTimeout(lease, finalCommit)
	defer done()
	defer context.AfterFunc(x.r.ctx, done)() // Close does not wait any more
	err := x.takeOver(ctx)
	if err == nil {
		err = x.storeLast(ctx)
	}
	x.lose(x.lostError(err))
	return err
}

// storeLast stores what is acknowledged, and lets nothing more be when all of it is. It repeats what fails until ctx ends.
func (x *run) storeLast(ctx context.Context) error {
	retry := backoff.New(commitRetry, commitRetryLimit)
	for {
		err := x.commit(ctx)
		switch {
		case err == nil && x.loseStored(x.lostError(nil)):
			x.r.cured(x.part, "commit")
			return nil
		case err == nil: // more was acknowledged meanwhile
			continue
		case final(err), x.r.nc.IsClosed():
			return err
		}
		x.r.doubtOffsets(err)
		x.r.report(x.part, "commit", err)
		if x.waitToRetry(ctx, retry.Next()); ctx.Err() != nil {
			return err
		}
	}
}

func (x *run) tellEnd(err error) {
	h := x.r.cfg.hooks
	switch {
	case err == nil && h.OnRevoked != nil:
		guard(x.r.cfg.log, "OnRevoked", func() { h.OnRevoked(x.part, x.owner.Epoch) })
	case err != nil && h.OnLost != nil:
		guard(x.r.cfg.log, "OnLost", func() { h.OnLost(x.part, x.owner.Epoch) })
	}
	if err != nil {
		x.r.cfg.log.Warn("partition ended", "partition", x.part, "epoch", x.owner.Epoch, "error", err)
	}
}

// lostError is what acknowledgements get from now on.
func (x *run) lostError(err error) error {
	if lost := (*PartitionLostError)(nil); errors.As(err, &lost) {
		return lost
	}
	return &PartitionLostError{Partition: x.part, Epoch: x.owner.Epoch}
}

// waitIdle waits until no handler of Process has the partition. finish lets one that runs finish its message; none begins a new one.
func (x *run) waitIdle(ctx context.Context, finish bool) {
	x.mu.Lock()
	x.ending = true
	if !x.busy {
		x.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	x.idle = idle
	cancel := x.inhand
	x.mu.Unlock()
	if !finish && cancel != nil {
		cancel()
	}
	select {
	case <-idle:
	case <-ctx.Done():
		<-idle // cancelled by lose; the partition is released only when the handler has returned
	}
}

// commitLoop stands by until ctx ends (nil) or the offset is lost: it stores what rounds could not, and calls OnCommitted.
func (x *run) commitLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-x.wakeSave:
		}
		x.tellOwed()
		x.mu.Lock()
		alone := x.alone
		x.note() // somebody else may have something to be stored
		x.mu.Unlock()
		if alone {
			if err := x.storeAlone(ctx); err != nil {
				return err
			}
		}
	}
}

// storeAlone stores what is acknowledged, however long that takes, and leaves the rest to rounds again. It returns nil when ctx has ended.
func (x *run) storeAlone(ctx context.Context) error {
	retry, failing := backoff.New(commitRetry, commitRetryLimit), false
	for {
		if !x.r.manager.Owns(x.owner.Partition) { // the lease has run out, and the end of ctx is on its way
			if backoff.Sleep(ctx, ownsRecheck) != nil {
				return nil
			}
			continue
		}
		err := x.commit(ctx)
		switch {
		case err == nil:
			if failing {
				x.r.cured(x.part, "commit")
			}
			x.mu.Lock()
			x.alone = false
			x.note()
			x.mu.Unlock()
			return nil
		case ctx.Err() != nil:
			return nil // the end decides what becomes of it
		case final(err):
			return err
		}
		x.r.doubtOffsets(err)
		x.r.report(x.part, "commit", err)
		x.waitToRetry(ctx, retry.Next())
		failing = true
	}
}

// takeOver makes the handler's goroutine the only one that writes the offset. It waits for a write that is under way; the error is ctx's.
func (x *run) takeOver(ctx context.Context) error {
	for {
		x.mu.Lock()
		x.alone = true
		over := x.flight == nil
		x.mu.Unlock()
		if over {
			x.tellOwed()
			return nil
		}
		select {
		case <-x.landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitToRetry waits after a commit that failed; a new connection, or a new bucket, ends it.
func (x *run) waitToRetry(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-x.hurry:
	}
}

// final reports whether an error of a commit ends the run.
func final(err error) bool {
	return errors.Is(err, ErrPartitionLost) || errors.Is(err, errOffsetChanged)
}

// commit stores what is acknowledged, if it is not yet, and tells those who wait. Only where alone is set.
func (x *run) commit(ctx context.Context) error {
	x.mu.Lock()
	snap, needed := x.snapshot()
	x.mu.Unlock()
	if needed {
		err := x.writer.commit(ctx, snap.o)
		x.r.cfg.metrics.Committed(x.part, time.Since(snap.began), err)
		if err != nil {
			x.mu.Lock()
			x.force = true
			x.mu.Unlock()
			return err
		}
	}
	x.mu.Lock()
	freed := x.settle(snap)
	x.mu.Unlock()
	if freed {
		x.r.enqueue(x)
	}
	if needed {
		x.tellCommitted(snap.o)
	}
	return nil
}

// snapshot returns what is to be stored now, and whether it differs from what is. Held: mu.
func (x *run) snapshot() (s snapshot, needed bool) {
	s = snapshot{pending: x.pending, gen: x.gen, began: time.Now()}
	s.o = Offset{Partition: x.part, Sequence: x.acked, Stream: x.id, Lag: x.lag(), At: s.began.UTC()}
	s.o.Epoch, s.o.Worker = x.owner.Epoch, x.owner.Holder.Worker
	needed = x.force || s.o.Sequence != x.saved.Sequence || !s.o.Stream.Equal(x.saved.Stream)
	x.force = false
	return s, needed
}

// settle takes note that a snapshot is stored, and tells those who wait. It reports whether the partition was held back until now: then it is to
// have a turn. Held: mu.
func (x *run) settle(s snapshot) (freed bool) {
	freed = x.heldBack()
	x.saved = s.o
	if x.gen == s.gen {
		x.pending -= s.pending
	}
	kept := x.waiters[:0]
	for _, w := range x.waiters {
		if w.seq <= s.o.Sequence && x.gen == s.gen {
			w.done <- nil
		} else {
			kept = append(kept, w)
		}
	}
	x.waiters = kept
	return freed && !x.heldBack()
}

// tellOwed calls OnCommitted with what rounds has stored.
func (x *run) tellOwed() {
	x.mu.Lock()
	o := x.owed
	x.mu.Unlock()
	if o == nil {
		return
	}
	x.tellCommitted(*o)
	x.mu.Lock()
	x.owed = nil
	x.note()
	x.mu.Unlock()
}

func (x *run) tellCommitted(o Offset) {
	if hook := x.r.cfg.hooks.OnCommitted; hook != nil {
		guard(x.r.cfg.log, "OnCommitted", func() { hook(o) })
	}
}
