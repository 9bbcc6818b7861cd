package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// firstPull is how much a new consumer is asked for at first: many that start at once at random positions of a stream are served
	// ten times sooner so.
	firstPull = 20
	// pullExpiry is how long the server keeps a pull, and pullHeartbeat how often it says that there is nothing to deliver.
	pullExpiry    = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// feedSilence is after how long without a sign a pull is given up.
	feedSilence = 13 * time.Second
	// pullOverhead is what a message needs beyond headers and data: the server counts subjects as well.
	pullOverhead = 8 << 10
)

// Why a feed is made anew. None of them loses or repeats a message: the next feed begins behind the last message taken.
var (
	errGap          = errors.New("messages were lost on the way")
	errConsumerGone = errors.New("the consumer is gone")
	errSilence      = errors.New("the server is silent")
	errReconnected  = errors.New("the connection was made anew")
)

// feed is one server-side consumer that reads a stream in order: ephemeral, without acknowledgements, from a sequence on. The
// server numbers what it delivers, so a loss shows; then the feed is broken and another one begins behind what was taken. The callback
// of its subscription is the only goroutine that calls sink.
type feed struct {
	r      *Reader
	stream string
	name   string
	inbox  string
	sub    *nats.Subscription
	// sink takes a message in; caughtUp is told that everything up to a stream sequence has been delivered. Both are called in order.
	sink     func(m *nats.Msg, meta metadata)
	caughtUp func(sequence uint64)
	// room says what may be under way.
	room     func() room
	maxBytes int // what the largest message of the stream needs

	mu      sync.Mutex // never held over a call of sink, room or the connection
	next    uint64     // number of the delivery to come
	asked   int        // messages that pulls under way may still bring
	low     int        // ask again when asked has come down to this
	pulls   uint64
	grow    int  // limit of what is asked for, grows with the pulls
	single  bool // ask for one message without a limit in bytes: it is larger than the limit
	pending uint64
	signs   uint64 // things heard
	noted   uint64 // signs at the last look
	quiet   time.Time
	err     error // why it is broken
	broken  chan struct{}
}

// feedSpec says what to read.
type feedSpec struct {
	stream   string
	label    string // part of the consumer's name, for operators
	filters  []string
	from     uint64 // first stream sequence, at least 1
	sink     func(m *nats.Msg, meta metadata)
	caughtUp func(sequence uint64)
	room     func() room
}

// room is what a feed may have under way.
type room struct {
	messages int // that fit now
	capacity int // that fit when nothing is held
	bytes    int // that fit now
	volume   int // bytes that fit when nothing is held
	size     int // of an average message; 0: not known
}

// openFeed makes the consumer and verifies that it is one of the stream that check accepts; only then anything is asked for. The number of
// consumers that are made at the same time is bounded.
func (r *Reader) openFeed(ctx context.Context, s feedSpec, check func(streamState) error) (*feed, error) {
	select {
	case r.creations <- struct{}{}:
		defer func() { <-r.creations }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f := &feed{
		r: r, stream: s.stream, name: "parti-" + r.group + "-" + s.label + "-" + nuid.Next(), inbox: r.nc.NewInbox() + ".",
		sink: s.sink, caughtUp: s.caughtUp, room: s.room, next: 1, grow: firstPull, broken: make(chan struct{}), quiet: time.Now(),
	}
	pending, err := f.create(ctx, s)
	if err != nil {
		return nil, err
	}
	f.pending = pending
	// Asked after the consumer was made, this proves which stream the consumer belongs to.
	state, err := r.streamState(ctx, s.stream)
	if err == nil {
		err = check(state)
	}
	if err != nil {
		f.drop()
		return nil, err
	}
	f.maxBytes = int(r.nc.MaxPayload()) + pullOverhead
	if state.maxMsgSize > 0 {
		f.maxBytes = state.maxMsgSize + pullOverhead
	}
	if f.sub, err = r.nc.Subscribe(f.inbox+"*", f.receive); err == nil {
		err = f.sub.SetPendingLimits(-1, -1) // bounded by what is asked for
	}
	if err != nil {
		f.drop()
		return nil, err
	}
	return f, nil
}

func (f *feed) create(ctx context.Context, s feedSpec) (pending uint64, err error) {
	cfg := jetstream.ConsumerConfig{
		Name: f.name, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(s.from, 1), AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive, MaxWaiting: 16,
	}
	if len(s.filters) == 1 {
		cfg.FilterSubject = s.filters[0]
	} else {
		cfg.FilterSubjects = s.filters
	}
	ctx, cancel := f.r.call(ctx)
	defer cancel()
	c, err := f.r.js.CreateConsumer(ctx, f.stream, cfg)
	if err != nil {
		if ctx.Err() != nil {
			f.drop() // it may have been made
		}
		return 0, fmt.Errorf("consumer: read stream %s: %w", f.stream, err)
	}
	return c.CachedInfo().NumPending, nil
}

// close ends the feed. A message that is just arriving may still reach sink, which must know that its feed is over.
func (f *feed) close() {
	_ = f.sub.Unsubscribe() // fails on a closed connection only
	f.drop()
}

// drop tells the server that the consumer is not needed any more, without waiting. Where that gets lost, it ends by being idle.
func (f *feed) drop() {
	_ = f.r.nc.Publish(f.r.api+"CONSUMER.DELETE."+f.stream+"."+f.name, nil)
}

// breakWith ends the deliveries; the owner makes another feed.
func (f *feed) breakWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.breakLocked(err)
}

func (f *feed) breakLocked(err error) {
	if f.err == nil {
		f.err = err
		close(f.broken)
	}
}

// cause says why the feed is broken.
func (f *feed) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// receive is the subscription's callback.
func (f *feed) receive(m *nats.Msg) {
	meta, ok := parseReply(m.Reply)
	if !ok {
		f.status(m)
		return
	}
	f.mu.Lock()
	if f.err == nil && meta.consumerSeq != f.next {
		f.breakLocked(fmt.Errorf("%w: delivery %d came as number %d", errGap, f.next, meta.consumerSeq))
	}
	if f.err != nil {
		f.mu.Unlock()
		return
	}
	f.next++
	f.signs++
	f.asked = max(f.asked-1, 0)
	f.pending = meta.pending
	f.single = false
	low := f.asked <= f.low
	f.mu.Unlock()
	f.sink(m, meta)
	if low {
		f.request()
	}
}

// status takes in what the server says about a pull.
func (f *feed) status(m *nats.Msg) {
	h := m.Header
	f.mu.Lock()
	f.signs++
	upTo := uint64(0)
	switch code := h.Get("Status"); code {
	case "100":
		upTo = f.heartbeatLocked(h)
	case "503":
		f.breakLocked(errConsumerGone)
	case "404", "408", "409", "423":
		left, ok := digits(h.Get("Nats-Pending-Messages"))
		switch text := h.Get("Description"); {
		case ok && (text == "Message Size Exceeds MaxBytes"):
			f.asked = max(f.asked-int(left), 0)
			f.single = true
		case ok:
			f.asked = max(f.asked-int(left), 0)
		case code == "409":
			f.breakLocked(fmt.Errorf("%w: %s", errConsumerGone, text))
		default:
			f.asked = 0
		}
	}
	f.mu.Unlock()
	if upTo > 0 {
		f.caughtUp(upTo)
	}
	f.request()
}

// heartbeatLocked reads an idle heartbeat. It comes on the same way as the messages, so what it says was delivered must have arrived; then
// everything up to the stream sequence it names has been.
func (f *feed) heartbeatLocked(h nats.Header) (upTo uint64) {
	last, ok := digits(h.Get("Nats-Last-Consumer"))
	scanned, ok2 := digits(h.Get("Nats-Last-Stream"))
	if !ok || !ok2 || f.err != nil {
		return 0
	}
	if last != f.next-1 {
		f.breakLocked(fmt.Errorf("%w: %d were delivered, %d arrived", errGap, last, f.next-1))
		return 0
	}
	f.pending = 0
	return scanned
}

// request asks for more when there is room for at least half of what may be under way. It may be called from any goroutine.
func (f *feed) request() {
	f.mu.Lock()
	next := f.next
	f.mu.Unlock()
	space := f.room()
	if space.size > 0 {
		if space.messages > 0 {
			space.messages = min(space.messages, max(1, space.bytes/space.size))
		}
		space.capacity = min(space.capacity, max(1, space.volume/space.size))
	}
	f.mu.Lock()
	came := int(f.next - next) // since the room was measured: neither in that nor in what is asked for
	want := min(space.messages-came, f.grow) - f.asked
	if f.err != nil || want < max(1, min(space.capacity, f.grow)/2) {
		f.mu.Unlock()
		return
	}
	maxBytes := max(space.bytes, f.maxBytes)
	if f.single {
		want, maxBytes = 1, 0
	}
	f.asked += want
	f.low = f.asked / 2
	f.pulls++
	f.grow = min(f.grow*4, 1<<16)
	reply := f.inbox + strconv.FormatUint(f.pulls, 10)
	f.mu.Unlock()
	err := f.r.nc.PublishRequest(f.r.api+"CONSUMER.MSG.NEXT."+f.stream+"."+f.name, reply, pullRequest(want, maxBytes, pullExpiry, pullHeartbeat))
	if err != nil {
		f.breakWith(fmt.Errorf("consumer: pull: %w", err))
	}
}

// look is called about once a second: it breaks a feed that has asked for something and hears nothing.
func (f *feed) look(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signs != f.noted || f.asked == 0 {
		f.noted, f.quiet = f.signs, now
		return
	}
	if now.Sub(f.quiet) >= feedSilence {
		f.breakLocked(errSilence)
	}
}

// idle reports whether nothing is asked for.
func (f *feed) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked == 0
}
