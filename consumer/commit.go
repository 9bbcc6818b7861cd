package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/backoff"
)

// finalCommit bounds the last commit of a partition that is given back.
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
	r.remove(x)
	r.cfg.metrics.PartitionGone(part)
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
	err := x.commit(ctx)
	x.lose(x.lostError(err))
	return err
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

// commitLoop stores what is acknowledged until ctx ends (nil) or the offset is lost.
func (x *run) commitLoop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	retry, failing := backoff.New(commitRetry, commitRetryLimit), false
	for {
		due, dirty := x.due()
		if dirty && due <= 0 {
			if !x.r.manager.Owns(x.owner.Partition) { // the lease has run out, and the end of ctx is on its way
				if backoff.Sleep(ctx, ownsRecheck) != nil {
					return nil
				}
				continue
			}
			if err := x.commit(ctx); err != nil {
				if ctx.Err() != nil {
					return nil // the end decides what becomes of it
				}
				if final(err) {
					return err
				}
				x.r.doubtOffsets(err)
				x.r.report(x.part, "commit", err)
				x.waitToRetry(ctx, retry.Next())
				failing = true
				continue
			}
			if failing {
				failing = false
				retry.Reset()
				x.r.cured(x.part, "commit")
			}
			continue
		}
		if !dirty {
			due = time.Hour
		}
		timer.Reset(due)
		select {
		case <-ctx.Done():
			return nil
		case <-x.wakeSave:
		case <-timer.C:
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

// due says whether anything is to be stored, and in how long it has to be.
func (x *run) due() (in time.Duration, dirty bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.force || len(x.waiters) > 0 || x.pending >= x.r.cfg.commitMsgs:
		return 0, true
	case x.pending == 0:
		return 0, false
	}
	return time.Until(x.since.Add(x.r.commitDelay())), true
}

// unhurried is how many partitions a Reader may own before its commits become rarer, and rarest by how many times they do at most.
const unhurried, rarest = 50, 10

// commitDelay is the delay of WithCommit, longer where many partitions are owned: a thousand partitions that are read slowly would
// otherwise make one write for every few messages, which costs more than reading them.
func (r *Reader) commitDelay() time.Duration {
	n := min(max(r.owned.Load(), unhurried), unhurried*rarest)
	return r.cfg.commitEvery / unhurried * time.Duration(n)
}

// commit stores what is acknowledged, if it is not yet, and tells those who wait.
func (x *run) commit(ctx context.Context) error {
	x.mu.Lock()
	o := Offset{Partition: x.part, Sequence: x.acked, Stream: x.id, Lag: x.lag(), At: time.Now().UTC()}
	o.Epoch, o.Worker = x.owner.Epoch, x.owner.Holder.Worker
	needed := x.force || o.Sequence != x.saved.Sequence || !o.Stream.Equal(x.saved.Stream)
	pending, gen := x.pending, x.gen
	x.force = false
	x.mu.Unlock()
	if needed {
		began := time.Now()
		err := x.writer.commit(ctx, o)
		x.r.cfg.metrics.Committed(x.part, time.Since(began), err)
		if err != nil {
			x.mu.Lock()
			x.force = true
			x.mu.Unlock()
			return err
		}
	}
	x.mu.Lock()
	x.saved = o
	if x.gen == gen {
		x.pending -= pending
	}
	if x.pending > 0 {
		x.since = time.Now()
	}
	kept := x.waiters[:0]
	for _, w := range x.waiters {
		if w.seq <= o.Sequence && x.gen == gen {
			w.done <- nil
		} else {
			kept = append(kept, w)
		}
	}
	x.waiters = kept
	x.mu.Unlock()
	if needed {
		x.tellCommitted(o)
	}
	return nil
}

func (x *run) tellCommitted(o Offset) {
	if hook := x.r.cfg.hooks.OnCommitted; hook != nil {
		guard(x.r.cfg.log, "OnCommitted", func() { hook(o) })
	}
}
