package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
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
	look   bool // that message is to be looked at before anything follows it, whatever the stream's end
}

// suspect makes the last message that was taken in be looked at: the server may have been away, and have come back without the end of its
// streams. What was stored since in the place of the lost messages would be taken for what was read.
func (x *run) suspect() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubt.look = x.doubt.seq > 0
}

// errUnsure: each member of a shared feed is to look for itself.
var errUnsure = errors.New("the stream may have lost its end")

// verify is suspect for all members of a shared feed at once: where the newest message is still there, so are those before it.
func (s *shared) verify(ctx context.Context, members []*run) error {
	var newest doubt
	for _, x := range members {
		x.mu.Lock()
		if x.doubt.seq == x.pos && x.doubt.seq > newest.seq {
			newest = x.doubt
		}
		x.mu.Unlock()
	}
	if newest.seq == 0 {
		return nil
	}
	same, err := s.r.storedAt(ctx, s.stream, newest.seq, newest.stored)
	if err != nil || same {
		return err
	}
	for _, x := range members {
		x.suspect()
		x.failShared(errUnsure)
	}
	return nil
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
	if d.since.IsZero() && !d.look {
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
	x.doubt.since, x.doubt.look = time.Time{}, false
	if !same {
		return x.changed(state, pos)
	}
	return nil
}

// storedAt reports whether a message of the stream was stored at that time, or is there no more. Who may not look is told that it was.
func (r *Reader) storedAt(ctx context.Context, stream string, seq uint64, stored int64) (bool, error) {
	select {
	case r.creations <- struct{}{}: // as few at a time as consumers are made, which follow
		defer func() { <-r.creations }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	ctx, cancel := r.call(ctx)
	defer cancel()
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return false, err
	}
	m, err := s.GetMsg(ctx, seq)
	if err = kv.PermissionError(r.nc, "get", err, r.api+"DIRECT.GET."+stream, r.api+"STREAM.MSG.GET."+stream); errors.Is(err, types.ErrPermission) {
		r.report(whole, "look at "+stream, fmt.Errorf("consumer: whether the stream has lost its end is not known: %w", err))
		return true, nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return err == nil && m.Time.UnixNano() == stored, err
}
