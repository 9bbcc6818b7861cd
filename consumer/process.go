package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/backoff"
)

// Handler processes one message. When it returns nil the message is acknowledged; an error makes it come again, see [WithRetry]. A panic
// counts as an error, and so does runtime.Goexit.
//
// ctx ends when the context of Process does, and when the partition is lost (context.Cause wraps [ErrPartitionLost]): return then, what
// comes of it does not count. When the partition is revoked in good order, or the Reader closed, ctx goes on and the release waits for
// the handler; it should not take long.
type Handler func(ctx context.Context, m Message) error

// Process calls the handler for each message: of one partition in order and one at a time, of different partitions in parallel, within
// [WithConcurrency]. Acknowledgements are stored in batches, see [WithCommit]; the last ones of a partition before it is released.
//
// It returns when ctx has ended (with its error) or the Reader was closed ([ErrReaderClosed]), after every handler has returned. While it
// runs, Fetch, All and another Process return [ErrInUse].
func (r *Reader) Process(ctx context.Context, handler Handler) error {
	if handler == nil {
		return fmt.Errorf("%w: the handler is nil", ErrInvalidConfig)
	}
	if err := r.reserve(ctx); err != nil {
		return err
	}
	defer r.unreserve()
	p := &processor{r: r, ctx: ctx, handler: handler}
	if n := r.cfg.concurrency; n > 0 {
		p.slots = make(chan struct{}, n)
	}
	defer p.workers.Wait()
	for {
		if err := p.acquire(); err != nil {
			return err
		}
		x, _ := r.next()
		if x != nil {
			p.workers.Go(func() {
				defer p.release()
				p.work(x)
			})
			continue
		}
		p.release()
		if r.takeStop() != nil { // the hook and the log have told
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.closing:
			return r.closedErr()
		}
	}
}

// processor is one call of Process.
type processor struct {
	r       *Reader
	ctx     context.Context
	handler Handler
	slots   chan struct{} // nil: as many as there are partitions
	workers sync.WaitGroup
}

func (p *processor) acquire() error {
	select {
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-p.r.closing:
		return p.r.closedErr()
	default:
	}
	if p.slots == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-p.r.closing:
		return p.r.closedErr()
	}
}

func (p *processor) release() {
	if p.slots != nil {
		<-p.slots
	}
}

// trouble is what is known of the message at the front that has failed.
type trouble struct {
	seq      uint64
	attempts int
	unburied int // dead letters that could not be published
	wait     time.Duration
	err      error
	poison   bool // the policy applies; the handler is not called again
}

// work handles messages of one partition, in order, until it has had its turn.
func (p *processor) work(x *run) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	lose := func() { cancel(x.lossCause()) }
	for range quantum {
		if ctx.Err() != nil {
			break
		}
		m, before, ok := x.hand(lose)
		if !ok {
			return
		}
		if before.attempts == 0 {
			p.r.cfg.metrics.Fetched(1)
		}
		again := p.handleOne(ctx, x, m, before)
		if !again {
			return
		}
	}
	p.r.enqueue(x)
}

// handleOne tries one message once, and reports whether the partition's next message may follow at once.
func (p *processor) handleOne(ctx context.Context, x *run, m Message, t trouble) bool {
	if t.poison {
		return p.poisoned(ctx, x, m, t)
	}
	began, returned := time.Now(), false
	defer func() {
		if !returned { // this goroutine ends
			p.r.cfg.log.Error("a handler has ended its goroutine", "partition", m.Partition, "sequence", m.Sequence)
			if p.judge(ctx, x, m, t, time.Since(began), errGoexit) {
				p.r.enqueue(x)
			}
		}
	}()
	err := p.call(ctx, m)
	returned = true
	return p.judge(ctx, x, m, t, time.Since(began), err)
}

// errGoexit: the handler has not returned.
var errGoexit = errors.New("the handler has ended its goroutine: runtime.Goexit, or FailNow of a test")

// judge decides what follows from what a handler returned, and gives the partition back.
func (p *processor) judge(ctx context.Context, x *run, m Message, t trouble, took time.Duration, err error) bool {
	p.r.cfg.metrics.Handled(x.part, took, err)
	if err == nil || x.acknowledged(m) {
		return x.done(m, nil)
	}
	if ctx.Err() != nil { // it says nothing about the message
		t.wait = 0 // who hands out next may have it at once
		return x.done(m, &t)
	}
	t.attempts++
	t.err = err
	retry := p.r.cfg.retry
	if !errors.As(err, new(permanent)) && (retry.Attempts == 0 || t.attempts < retry.Attempts) {
		t.wait = backoff.Wait(retry.First, retry.Limit, t.attempts-1)
		return x.done(m, &t)
	}
	t.poison, t.wait = true, 0
	return p.poisoned(ctx, x, m, t)
}

// call calls the handler and turns a panic into an error.
func (p *processor) call(ctx context.Context, m Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.r.cfg.log.Error("panic in a handler", "partition", m.Partition, "sequence", m.Sequence, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.handler(ctx, m)
}

// poisoned applies the policy to a message.
func (p *processor) poisoned(ctx context.Context, x *run, m Message, t trouble) bool {
	e := &PoisonError{Message: m, Attempts: t.attempts, Err: t.err}
	action := p.r.cfg.poison
	switch {
	case action == PoisonDeadLetter && p.r.cameBack(m): // for ever, otherwise
		action = PoisonStop
		t.err = fmt.Errorf("%w; it is a dead letter of this group, which reads the subject %s itself: give WithDeadLetter another one, and Seek passes it over",
			t.err, p.r.cfg.deadLetter)
		e.Err = t.err
	case action == PoisonDeadLetter:
		if err := p.r.bury(ctx, e); err != nil {
			if ctx.Err() == nil {
				p.r.report(x.part, "dead letter", fmt.Errorf("dead letter: %w", err))
			}
			t.wait = backoff.Wait(p.r.cfg.retry.First, p.r.cfg.retry.Limit, t.unburied)
			t.unburied++
			return x.done(m, &t)
		}
	}
	p.r.cfg.metrics.Poisoned(x.part, action)
	p.r.cfg.log.Error("message could not be processed", "partition", x.part, "sequence", m.Sequence, "action", action.String(), "error", t.err)
	if hook := p.r.cfg.hooks.OnPoison; hook != nil {
		guard(p.r.cfg.log, "OnPoison", func() { hook(e, action) })
	}
	if action == PoisonStop {
		x.stop(e)
		return x.done(m, &trouble{})
	}
	return x.done(m, nil)
}

// The headers of a dead letter, beside those of the message.
const (
	HeaderReason    = "Parti-Reason"    // the handler's last error
	HeaderGroup     = "Parti-Group"     // the group whose handler failed
	HeaderPartition = "Parti-Partition" // number of the partition
	HeaderStream    = "Parti-Stream"    // where the message is stored
	HeaderSubject   = "Parti-Subject"
	HeaderSequence  = "Parti-Sequence"
	HeaderAttempts  = "Parti-Attempts"  // how often it was tried
	HeaderTimestamp = "Parti-Timestamp" // when the message was stored, RFC 3339
)

// bury publishes a message to the dead-letter subject and returns when it is stored.
func (r *Reader) bury(ctx context.Context, e *PoisonError) error {
	m := e.Message
	h := nats.Header{}
	for k, v := range m.Headers {
		if len(k) < 5 || k[:5] != "Nats-" { // those are orders to the server, e.g. a message ID or an expected sequence
			h[k] = v
		}
	}
	h.Set(HeaderReason, oneLine(e.Err.Error()))
	h.Set(HeaderGroup, r.group)
	h.Set(HeaderPartition, strconv.Itoa(m.Partition))
	h.Set(HeaderStream, m.Stream)
	h.Set(HeaderSubject, m.Subject)
	h.Set(HeaderSequence, strconv.FormatUint(m.Sequence, 10))
	h.Set(HeaderAttempts, strconv.Itoa(e.Attempts))
	h.Set(HeaderTimestamp, m.Timestamp.UTC().Format(time.RFC3339Nano))
	ctx, cancel := r.call(ctx)
	defer cancel()
	id := fmt.Sprintf("%s/%s/%d/%d", r.group, m.Stream, m.Sequence, m.Timestamp.UnixNano())
	_, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: r.cfg.deadLetter, Data: m.Data, Header: h}, jetstream.WithMsgID(id))
	if nobodyStores(err) {
		err = fmt.Errorf("no stream takes the subject %s: create one: %w", r.cfg.deadLetter, err)
	}
	return err
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	const most = 1000
	if len(s) > most {
		s = s[:most]
	}
	b := []byte(s)
	for i, c := range b {
		if c < ' ' {
			b[i] = ' '
		}
	}
	return string(b)
}

// hand hands the message at the front to a handler; cancel is called when the partition is lost meanwhile.
func (x *run) hand(cancel func()) (m Message, t trouble, ok bool) {
	x.mu.Lock()
	if !x.takeable() {
		x.mu.Unlock()
		return m, t, false
	}
	m = x.buf[x.head]
	x.dropFront()
	x.handed = append(x.handed, m.Sequence)
	x.taken = max(x.taken, m.Sequence)
	x.busy, x.inhand = true, cancel
	if x.trouble.seq == m.Sequence {
		t = x.trouble
	}
	x.refillAndUnlock()
	return m, t, true
}

// done takes the partition back from a handler: t is nil where the message is processed, and otherwise says what to do with it. It
// reports whether the next message may follow at once.
func (x *run) done(m Message, t *trouble) bool {
	if t == nil {
		_, _ = x.ack(m.Sequence, m.gen, false, false) // lost meanwhile: the next owner repeats it
	}
	x.mu.Lock()
	again := t != nil && x.live && m.gen == x.gen && m.Sequence > x.acked // its handler may have acknowledged it
	if again {
		x.putFront(m)
		x.trouble = *t
		x.trouble.seq = m.Sequence
		if t.wait > 0 {
			x.delayed = true
			gen := x.gen
			time.AfterFunc(t.wait, func() { x.endDelay(gen) })
		}
	}
	x.busy, x.inhand = false, nil
	if x.idle != nil {
		close(x.idle)
		x.idle = nil
	}
	seek := x.seek != nil
	x.mu.Unlock()
	if seek {
		poke(x.wakeRead)
	}
	if again && t.wait <= 0 { // the turn that the partition had is over, and what would give it another, Resume, may have come while it was busy
		x.r.enqueue(x)
	}
	return !again
}

// putFront puts back the one message that a handler has. Held: mu.
func (x *run) putFront(m Message) {
	if x.head > 0 && x.head <= len(x.buf) {
		x.head--
		x.buf[x.head] = m
	} else {
		x.buf = append([]Message{m}, x.buf...)
	}
	x.bytes += messageSize(&m)
	x.handed = x.handed[:0]
	if x.counted {
		x.shared.used.Add(1)
	}
}

func (x *run) endDelay(gen uint32) {
	x.mu.Lock()
	if x.gen == gen {
		x.delayed = false
	}
	x.mu.Unlock()
	x.r.enqueue(x)
}

// lossCause is why a handler's context ends.
func (x *run) lossCause() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lostErr != nil {
		return x.lostErr
	}
	return &PartitionLostError{Partition: x.part, Epoch: x.owner.Epoch}
}
