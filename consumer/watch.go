package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lookEvery is how often each stream in use is looked at: its identity and its bounds.
const lookEvery = time.Second

// streamState is what the server says about a stream.
type streamState struct {
	id          StreamID
	first, last uint64 // sequences; first is last+1 where the stream is empty
	maxMsgSize  int    // 0: no limit of its own
	replicated  bool   // so the server that answered may lag behind, or have been replaced without knowing it
}

// tick is one look at a stream.
type tick struct {
	state streamState
	err   error
	at    time.Time
	pos   uint64 // the partition's position when the look began: what is stored meanwhile may be read before the look is judged
	edge  uint64 // the partition's edge then: what was removed before it was noted shows in the look
	gen   uint32
}

// errNoStream: the stream does not exist, as far as the server that answered knows.
var errNoStream = errors.New("consumer: the stream does not exist")

// streamState asks the server about a stream. One whose messages do not stay when they were delivered is an error.
func (r *Reader) streamState(ctx context.Context, name string) (streamState, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		if missing(err) {
			err = fmt.Errorf("%w: %s: %w", errNoStream, name, err)
		}
		return streamState{}, err
	}
	info := s.CachedInfo()
	if keep := info.Config.Retention; keep != jetstream.LimitsPolicy {
		return streamState{}, fmt.Errorf("%w: the stream %s has the retention policy %s, which deletes what was delivered, and nothing of it could be handed "+
			"out again: give it the limits policy", ErrInvalidConfig, name, strings.ToLower(keep.String()))
	}
	return streamState{
		id: StreamID{Name: name, Created: info.Created}, first: max(info.State.FirstSeq, 1), last: info.State.LastSeq,
		maxMsgSize: max(int(info.Config.MaxMsgSize), 0), replicated: info.Config.Replicas > 1,
	}, nil
}

func missing(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) }

// watch looks at one stream for all partitions of the Reader that it holds. Its goroutine exists while there are any.
type watch struct {
	runs map[*run]struct{} // guarded by the Reader's lock
	kick chan struct{}
	stop context.CancelFunc
}

// watchStream makes the stream's looks arrive at x.ticks, until the function is called.
func (r *Reader) watchStream(x *run) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watches[x.stream]
	if w == nil {
		ctx, cancel := context.WithCancel(r.ctx)
		w = &watch{runs: map[*run]struct{}{}, kick: make(chan struct{}, 1), stop: cancel}
		r.watches[x.stream] = w
		r.jobs.Go(func() { r.watchLoop(ctx, x.stream, w) })
	}
	w.runs[x] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(w.runs, x); len(w.runs) == 0 {
			w.stop()
			delete(r.watches, x.stream)
		}
	}
}

func (r *Reader) watchLoop(ctx context.Context, stream string, w *watch) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.kick:
		case <-ctx.Done():
			return
		}
		looks := r.beginLook(stream, w)
		state, err := r.streamState(ctx, stream)
		if ctx.Err() != nil {
			return
		}
		for x, t := range looks {
			t.state, t.err, t.at = state, err, time.Now()
			select { // the latest counts
			case <-x.ticks:
			default:
			}
			x.ticks <- t
		}
		timer.Reset(lookEvery)
	}
}

// beginLook notes where each partition is.
func (r *Reader) beginLook(stream string, w *watch) map[*run]tick {
	r.mu.Lock()
	defer r.mu.Unlock()
	edge, generation := uint64(0), uint32(0)
	if s := r.shares[stream]; s != nil {
		if c := s.present(); c != nil {
			edge, generation = c.takeEdge(), c.generation
		}
	}
	looks := make(map[*run]tick, len(w.runs))
	for x := range w.runs {
		x.mu.Lock()
		x.heed(edge, generation)
		looks[x] = tick{pos: x.pos, gen: x.gen, edge: x.edge}
		x.mu.Unlock()
	}
	return looks
}

// call bounds one request to the server: by time, and by the life of the connection, since an answer to what was sent on a lost one
// never comes.
func (r *Reader) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(r.connection(), cancel)
	return ctx, func() { stop(); cancel() }
}

// connection returns the context of the present connection.
func (r *Reader) connection() context.Context {
	r.connMu.Lock()
	defer r.connMu.Unlock()
	return r.conn
}

// renewConnection ends the requests of the connection before.
func (r *Reader) renewConnection() {
	r.connMu.Lock()
	end := r.endConn
	r.conn, r.endConn = context.WithCancel(r.ctx)
	r.connMu.Unlock()
	if end != nil {
		end()
	}
}

// followConnection makes everything anew that a lost connection may have left incomplete. It is the Reader's own goroutine.
func (r *Reader) followConnection(ctx context.Context, status <-chan nats.Status) {
	for {
		select {
		case <-status:
		case <-ctx.Done():
			return
		}
		r.renewConnection()
		r.mu.Lock()
		for _, x := range r.runs {
			x.mu.Lock()
			f := x.feed
			x.mu.Unlock()
			if f != nil {
				f.breakWith(errReconnected)
			}
			poke(x.wakeSave)
			poke(x.hurry)
		}
		poke(r.checkOffsets)
		for _, w := range r.watches {
			poke(w.kick)
		}
		for _, s := range r.shares {
			s.breakFeed(errReconnected)
		}
		r.mu.Unlock()
	}
}
