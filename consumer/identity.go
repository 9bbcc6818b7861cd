package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// doubtLimit is how long a replicated stream may be said to end before a position in it. A leader that was cut off and replaced goes on
// answering for up to 20 s.
const doubtLimit = 30 * time.Second

// errBehind: the stream is said to end before what was read from it. The one who says so may lag behind.
var errBehind = errors.New("the server knows less of the stream than was read from it")

// doubt is whether a replicated stream has lost its end. Nothing is read as long as there is doubt.
type doubt struct {
	since  time.Time // zero: there is none
	seq    uint64    // the last message that was taken in, and when the server had stored it, in Unix ns: 0 where none was
	stored int64
}

// sameStream checks that pos, a position of before the look, is one in this stream. Held: mu.
func (x *run) sameStream(s streamState, pos uint64) error {
	switch other := x.known && !x.id.Equal(s.id); {
	case !other && pos <= s.last:
		return nil
	case !other && s.replicated && x.doubt.since.IsZero():
		x.doubt.since = time.Now()
		return errBehind
	case !other && s.replicated && time.Since(x.doubt.since) < doubtLimit:
		return errBehind
	}
	return x.changed(s, pos)
}

// changed describes how the stream differs. Held: mu.
func (x *run) changed(s streamState, pos uint64) error {
	o := x.saved
	o.Stream, o.Sequence = x.id, pos
	return &StreamChangedError{Partition: x.part, Offset: o, Have: s.id, LastSequence: s.last}
}

// resolveDoubt returns nil when the stream has what was read from it. That its end has grown beyond the position proves nothing, since
// what was lost may have been replaced: the last message that was read must be there, stored at the same time. It runs on the reading goroutine, while
// no feed is open.
func (x *run) resolveDoubt(ctx context.Context) error {
	x.mu.Lock()
	d, pos := x.doubt, x.pos
	x.mu.Unlock()
	if d.since.IsZero() {
		return nil
	}
	state, err := x.r.streamState(ctx, x.stream)
	if err != nil {
		return err
	}
	x.mu.Lock()
	err = x.sameStream(state, pos)
	x.mu.Unlock()
	if err != nil {
		return err
	}
	same := true
	if d.seq > 0 && d.seq == pos {
		if same, err = x.r.storedAt(ctx, x.stream, pos, d.stored); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubt.since = time.Time{}
	if !same {
		return x.changed(state, pos)
	}
	return nil
}

// storedAt reports whether a message of the stream was stored at that time, or is there no more.
func (r *Reader) storedAt(ctx context.Context, stream string, seq uint64, stored int64) (bool, error) {
	ctx, cancel := r.call(ctx)
	defer cancel()
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return false, err
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return err == nil && m.Time.UnixNano() == stored, err
}
