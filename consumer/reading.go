package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/backoff"
)

// errMoved: a Seek is to be carried out, or the partition was stopped or resumed.
var errMoved = errors.New("consumer: the partition is to be moved")

// readLoop keeps reading the partition until ctx ends. It is the only goroutine that opens and closes the partition's feed and that
// moves its position.
func (x *run) readLoop(ctx context.Context) {
	defer x.r.watchStream(x)()
	retry := backoff.New(50*time.Millisecond, time.Second)
	x.waitGreeted(ctx)
	for ctx.Err() == nil {
		x.moveIfAsked(ctx)
		before := x.position()
		err := x.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if x.position() != before {
			retry.Reset()
		}
		if err != nil && !errors.Is(err, errMoved) {
			x.suspect()
		}
		switch wait, again := x.assess(ctx, err, retry); {
		case !again:
			x.waitMoved(ctx)
		case wait > 0:
			x.pauseReading(ctx, wait)
		}
	}
}

func (x *run) position() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pos
}

// assess decides what follows from the end of a read: to go on after a wait, or not to before Seek or Resume.
func (x *run) assess(ctx context.Context, err error, retry *backoff.Backoff) (wait time.Duration, again bool) {
	var changed *StreamChangedError
	var expired *ExpiredError
	switch {
	case err == nil, errors.Is(err, errMoved):
		return 0, !x.isStopped()
	case errors.As(err, &changed):
		return 0, x.streamChanged(ctx, changed)
	case errors.As(err, &expired):
		return 0, x.expire(expired)
	case routine(err):
		x.r.cfg.metrics.ReadingRestarted(x.part, err.Error())
		x.r.cfg.log.Info("reading anew", "partition", x.part, "reason", err)
		wait = retry.Next()
		if wait <= 50*time.Millisecond { // the first time, only so much that many do not come at once
			wait = rand.N(5 * time.Millisecond)
		}
		return wait, true
	}
	x.r.report(x.part, "read", err)
	return retry.Next(), true
}

// routine reports whether another feed cures the end of one, or of the attempt to open one.
func routine(err error) bool {
	return errors.Is(err, errGap) || errors.Is(err, errConsumerGone) || errors.Is(err, errSilence) || errors.Is(err, errReconnected) ||
		errors.Is(err, errBehind) || errors.Is(err, errUnsure) || errors.Is(err, context.Canceled) // of a request, so the connection that it was sent on is gone
}

// read opens the partition's feed, or joins the one that is shared, and stays until something ends it.
func (x *run) read(ctx context.Context) error {
	if x.isStopped() {
		return errMoved
	}
	if err := x.resolveDoubt(ctx); err != nil {
		return err
	}
	if err := x.begin(ctx); err != nil {
		return err
	}
	if x.r.isShared(x.stream) {
		return x.readShared(ctx)
	}
	return x.readAlone(ctx, nil)
}

// begin finds out where a partition begins that has no offset yet. Unless that is its first message, which anybody finds again, it returns when the
// beginning is stored: who takes over from a Reader that has handed something out and dies must not begin at another one.
func (x *run) begin(ctx context.Context) error {
	x.mu.Lock()
	known, pos := x.known, x.pos
	x.mu.Unlock()
	if known || pos > 0 {
		return nil
	}
	state, err := x.r.streamState(ctx, x.stream)
	if err != nil {
		return err
	}
	pos, err = x.r.resolve(ctx, x, x.r.cfg.start, state)
	if err != nil {
		return err
	}
	x.mu.Lock()
	if x.r.cfg.start.kind == earliest {
		defer x.mu.Unlock()
		x.id, x.known = state.id, true
		x.pos, x.clean, x.taken, x.acked = pos, pos, pos, pos
		return nil
	}
	return x.settleAt(ctx, pos, state.id)
}

// check judges a look at the stream before reading begins. pos is a position that the partition had before that look.
func (x *run) check(s streamState, pos uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.sameStream(s, pos); err != nil {
		return err
	}
	if x.clean+1 < s.first {
		return &ExpiredError{Partition: x.part, Stream: x.stream, First: x.clean + 1, Last: s.first - 1}
	}
	x.id, x.known = s.id, true
	return nil
}

// readAlone reads with a feed of the partition's own, until done (where not nil) reports true.
func (x *run) readAlone(ctx context.Context, done func() bool) error {
	x.mu.Lock()
	x.feedGen++
	gen, from := x.feedGen, x.pos+1
	x.mu.Unlock()
	f, err := x.r.openFeed(ctx, feedSpec{
		stream: x.stream, label: strconv.Itoa(x.part), filters: []string{x.subject}, from: from, room: x.space,
		sink:     func(m *nats.Msg, meta metadata) { x.push(m, meta, gen) },
		caughtUp: func(seq uint64) { x.caughtUp(seq, gen) },
	}, func(s streamState) error { return x.check(s, from-1) })
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.feed, x.left = f, f.pending
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		x.feed = nil
		x.feedGen++ // what still arrives does not count
		x.mu.Unlock()
		f.close()
	}()
	f.request()
	for {
		if done != nil && done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.broken:
			return f.cause()
		case <-x.wakeRead:
			if x.mustMove() {
				return errMoved
			}
			f.request()
		case t := <-x.ticks:
			f.look(t.at)
			x.probeLag(ctx, t.at, f.idle())
			if err := x.look(t, f.idle()); err != nil {
				return err
			}
			f.request()
		}
	}
}

// caughtUp takes note that everything of the partition up to a stream sequence was taken in.
func (x *run) caughtUp(seq uint64, gen uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.feedGen != gen {
		return
	}
	x.clean, x.left, x.blind = max(x.clean, seq), 0, false
	if x.hole > 0 && x.clean >= x.hole { // nothing of the partition is left of what the shared feed has passed over
		x.hole, x.settled = 0, x.clean
		x.count(true)
		poke(x.wakeRead)
	}
}

// look judges a regular look at the stream while the partition is read. idle: nothing is asked for.
func (x *run) look(t tick, idle bool) error {
	x.gauges()
	if t.err != nil {
		if errors.Is(t.err, errNoStream) || errors.Is(t.err, ErrInvalidConfig) {
			return t.err
		}
		return nil // no news
	}
	s := t.state
	x.mu.Lock()
	if t.gen != x.gen { // moved since
		x.mu.Unlock()
		return nil
	}
	if err := x.sameStream(s, t.pos); err != nil {
		x.mu.Unlock()
		return err
	}
	var gone *ExpiredError
	switch {
	case t.edge > 0 && s.first > t.edge:
		gone = &ExpiredError{Partition: x.part, Stream: x.stream, First: t.edge, Last: s.first - 1}
	case x.left > 0 && x.clean+1 < s.first:
		gone = &ExpiredError{Partition: x.part, Stream: x.stream, First: x.clean + 1, Last: s.first - 1}
	}
	x.noteLag(t.at)
	if x.edge == t.edge { // else it was noted since, and the next look tells
		x.edge = 0
	}
	x.blind = x.blind || idle
	if gone == nil && s.first > x.saved.Sequence+1 && x.clean > x.saved.Sequence && x.held() == 0 && len(x.handed) == 0 && x.hole == 0 {
		// The stream's beginning has passed the offset, and nothing of the partition lay in between: say so before somebody else
		// takes the partition over and thinks that something is missing.
		x.acked, x.force = x.clean, true
		poke(x.wakeSave)
	}
	x.mu.Unlock()
	if gone != nil && !x.expire(gone) {
		return errMoved
	}
	return nil
}

// gauges tells what a partition holds, and whether it is held back, about once a second.
func (x *run) gauges() {
	x.mu.Lock()
	lag, held, bytes := x.lag(), x.held(), x.bytes
	x.mu.Unlock()
	x.r.cfg.metrics.Lag(x.part, lag)
	x.r.cfg.metrics.Buffered(x.part, held, bytes)
	x.tellHeldBack()
}

// expire applies the policy to messages that are gone, and reports whether reading goes on.
func (x *run) expire(e *ExpiredError) bool {
	x.r.cfg.metrics.Expired(x.part, e.Last-e.First+1)
	x.r.cfg.log.Warn("messages are gone that were not read", "partition", x.part, "error", e)
	if hook := x.r.cfg.hooks.OnExpired; hook != nil {
		guard(x.r.cfg.log, "OnExpired", func() { hook(e) })
	}
	if x.r.cfg.expired == ExpiredFail {
		x.stop(e)
		return false
	}
	x.passOver(e)
	return true
}

// passOver goes on behind what is gone.
func (x *run) passOver(e *ExpiredError) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clean, x.pos, x.settled = max(x.clean, e.Last), max(x.pos, e.Last), max(x.settled, e.Last)
	if x.held() == 0 && len(x.handed) == 0 && x.hole == 0 {
		x.acked, x.taken, x.force = x.clean, x.clean, true // the next owner need not report it again
		poke(x.wakeSave)
	}
}

// streamChanged applies the policy to a stream that is not the offset's, and reports whether reading goes on.
func (x *run) streamChanged(ctx context.Context, e *StreamChangedError) bool {
	x.r.cfg.log.Warn("stream changed", "partition", x.part, "error", e)
	if x.r.cfg.recreated == RecreatedFail {
		x.stop(e)
		return false
	}
	to := Earliest()
	if x.r.cfg.recreated == RecreatedLatest {
		to = Latest()
	}
	x.r.report(x.part, "changed", e)
	if err := x.moveTo(ctx, to, nil); err != nil {
		x.r.report(x.part, "move", err)
		_ = backoff.Sleep(ctx, 100*time.Millisecond)
	}
	return true
}

// waitGreeted waits until OnAssigned has returned. A Seek in it is carried out.
func (x *run) waitGreeted(ctx context.Context) {
	for {
		x.moveIfAsked(ctx)
		select {
		case <-ctx.Done():
			return
		case <-x.greeted:
			return
		case <-x.wakeRead:
		}
	}
}

// waitMoved waits for Seek or Resume.
func (x *run) waitMoved(ctx context.Context) {
	for x.isStopped() && !x.hasSeek() {
		select {
		case <-ctx.Done():
			return
		case <-x.wakeRead:
		case <-x.ticks:
			x.gauges()
		}
	}
}

// pauseReading waits before another attempt; Seek ends it.
func (x *run) pauseReading(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-x.wakeRead:
			if x.hasSeek() {
				return
			}
		}
	}
}

func (x *run) isStopped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stopped != nil && !errors.Is(x.stopped, ErrPoison)
}

func (x *run) hasSeek() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seek != nil
}

func (x *run) mustMove() bool { return x.isStopped() || x.hasSeek() }
