package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/backoff"
)

const (
	// regroupDelay is how long a shared feed waits for further partitions before it is made anew for those that came.
	regroupDelay = 5 * time.Millisecond
	// sharedPull bounds what a shared feed asks for at a time.
	sharedPull = 2000
	// maxLaggards is how many partitions may be left to feeds of their own when they are far behind the others.
	maxLaggards = 16
	// farBehind is how many stream sequences make a partition a laggard.
	farBehind = 20_000
)

// shared reads many partitions of one stream by one server-side consumer: a consumer for each of hundreds of interleaved subjects is
// more than a server can do. Each partition's buffer stays bounded: what does not fit is passed over, and the partition catches up by
// a feed of its own for that long. Its goroutine exists while it has members.
type shared struct {
	r      *Reader
	stream string
	wake   chan struct{}

	used    atomic.Int64 // messages in the buffers of members that are not passed over
	counted atomic.Int64 // number of those members

	mu      sync.Mutex // never held over a call to the server or to a run
	members map[*run]struct{}
	gone    int // members of the present feed that have left
	changed bool
	feed    *feed
	course  *course // of feed
	stop    context.CancelFunc
}

// joinShared makes x a member of its stream's shared feed.
func (r *Reader) joinShared(x *run) *shared {
	r.mu.Lock()
	s := r.shares[x.stream]
	if s == nil {
		s = &shared{r: r, stream: x.stream, wake: make(chan struct{}, 1), members: map[*run]struct{}{}}
		r.shares[x.stream] = s
	}
	defer r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	x.mu.Lock()
	x.shared, x.sharedErr = s, nil
	x.attach, x.hole = 0, 0
	x.mu.Unlock()
	if len(s.members) == 0 {
		ctx, cancel := context.WithCancel(r.ctx)
		s.stop = cancel
		r.jobs.Go(func() { s.loop(ctx) })
	}
	s.members[x] = struct{}{}
	s.changed = true
	poke(s.wake)
	return s
}

func (s *shared) leave(x *run) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, x)
	s.gone++
	switch {
	case len(s.members) == 0:
		s.stop()
		delete(s.r.shares, s.stream) // the next member begins with another one
	case s.gone > len(s.members)/4: // too much is delivered for nobody
		s.changed = true
		poke(s.wake)
	}
}

// breakFeed makes the shared feed anew.
func (s *shared) breakFeed(err error) {
	s.mu.Lock()
	f := s.feed
	s.mu.Unlock()
	if f != nil {
		f.breakWith(err)
	}
}

// request asks for more, where there is room.
func (s *shared) request() {
	s.mu.Lock()
	f := s.feed
	s.mu.Unlock()
	if f != nil {
		f.request()
	}
}

// space lets the buffers of the members fill to a half on average, but at least one message where there are any: then only what differs from the others is
// passed over.
func (s *shared) space() room {
	share := s.r.share()
	n := int(s.counted.Load())
	half := n * share.capacity / 2
	if n > 0 {
		half = max(half, 1)
	}
	return room{messages: min(half-int(s.used.Load()), sharedPull), capacity: min(max(half, 1), sharedPull), bytes: max(s.r.cfg.totalBytes/4, 1)}
}

// loop opens a feed for the members again and again: when they change, and when it breaks.
func (s *shared) loop(ctx context.Context) {
	retry := backoff.New(50*time.Millisecond, time.Second)
	suspect := false // the server may have been away
	for ctx.Err() == nil {
		if !s.settle(ctx) {
			return
		}
		f, err := s.open(ctx, s.r.generations.Add(1), suspect)
		if err == nil {
			suspect = false
			s.r.cured(whole, "read "+s.stream)
			began := time.Now()
			err = s.follow(ctx, f)
			f.close()
			s.endCourse()
			if time.Since(began) > time.Second {
				retry.Reset()
			}
		}
		if ctx.Err() != nil || errors.Is(err, errMoved) {
			continue
		}
		suspect = true
		s.r.cfg.metrics.ReadingRestarted(-1, err.Error())
		if routine(err) {
			s.r.cfg.log.Info("reading anew", "stream", s.stream, "reason", err)
		} else if !missing(err) { // of which the members tell
			s.r.report(whole, "read "+s.stream, err)
		}
		_ = backoff.Sleep(ctx, retry.Next())
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
	}
}

// settle waits until the members have changed, and a moment longer for others.
func (s *shared) settle(ctx context.Context) bool {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if changed {
			return backoff.Sleep(ctx, regroupDelay) == nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// open makes a feed for the present members.
func (s *shared) open(ctx context.Context, generation uint32, suspect bool) (*feed, error) {
	s.mu.Lock()
	s.changed, s.gone = false, 0
	members := slices.Collect(maps.Keys(s.members))
	s.mu.Unlock()
	if len(members) == 0 {
		return nil, errMoved
	}
	if suspect {
		if err := s.verify(ctx, members); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(members, func(a, b *run) int { return cmp.Compare(a.part, b.part) })
	at, clean := make([]uint64, len(members)), make([]uint64, len(members))
	for i, x := range members {
		at[i], clean[i] = x.reach()
	}
	from := beginning(clean)
	d := demux{bySubject: make(map[string]*run, len(members))}
	filters := make([]string, len(members))
	for i, x := range members {
		filters[i] = x.subject
		d.add(x)
	}
	check := func(state streamState) error {
		if from > state.last+1 && !slices.Equal(at, clean) { // what is stored next would be passed over
			for _, x := range members {
				x.fallBack()
			}
			return errBehind
		}
		for i, x := range members {
			s.attach(x, state, at[i], from, generation)
		}
		return nil
	}
	limit, c := s.r.share(), &course{generation: generation, upTo: from - 1}
	f, err := s.r.openFeed(ctx, feedSpec{
		stream: s.stream, label: "shared", filters: filters, from: from, room: s.space,
		sink: func(m *nats.Msg, meta metadata) {
			if x := d.find(m.Subject); x != nil {
				x.pushShared(m, meta, c, limit)
			}
			c.delivered(meta)
		},
		caughtUp: func(seq uint64) {
			c.caughtUp(seq)
			for _, x := range members {
				x.caughtUpShared(seq, generation)
			}
		},
	}, check)
	if err != nil {
		if errors.Is(err, errNoStream) || missing(err) {
			for _, x := range members {
				x.failShared(fmt.Errorf("%w: %s: %w", errNoStream, s.stream, err))
			}
		}
		return nil, err
	}
	c.left = f.pending // nothing is delivered before it is asked for
	s.mu.Lock()
	s.feed, s.course = f, c
	s.mu.Unlock()
	f.request()
	return f, nil
}

// beginning chooses where a shared feed begins: at the member that is furthest behind, unless it and few others are far behind the
// rest. What lies before it, those get by feeds of their own; what others have already, they ignore.
func beginning(positions []uint64) uint64 {
	at := slices.Sorted(slices.Values(positions))
	k := min(max(len(at)/8, 1), maxLaggards, len(at)-1)
	if at[k] > at[0]+farBehind {
		return at[k] + 1
	}
	return at[0] + 1
}

// attach makes deliveries of the feed count for a member, or tells it why they do not.
func (s *shared) attach(x *run, state streamState, pos, from uint64, generation uint32) {
	if err := x.check(state, pos); err != nil {
		x.failShared(err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.shared != s || !x.live || x.doubt.look {
		return
	}
	x.attach = generation
	x.hole, x.settled = 0, x.clean
	if x.clean+1 < from {
		x.hole = from - 1
	}
	x.count(x.hole == 0)
	if x.hole > 0 {
		poke(x.wakeRead)
	}
}

// follow waits until the feed breaks or the members have changed.
func (s *shared) follow(ctx context.Context, f *feed) error {
	timer := time.NewTicker(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.broken:
			return f.cause()
		case <-s.wake:
			s.mu.Lock()
			changed := s.changed
			s.mu.Unlock()
			if changed {
				return errMoved
			}
		case now := <-timer.C:
			f.look(now)
			if f.idle() {
				s.present().idle()
			}
			f.request()
		}
	}
}

// readShared is a member's side: it waits, and catches up by a feed of its own when the shared one has passed something over.
func (x *run) readShared(ctx context.Context) error {
	s := x.r.joinShared(x)
	defer func() {
		x.conclude(s.present())
		s.leave(x)
		x.mu.Lock()
		x.attach, x.hole = 0, 0
		x.count(false)
		x.shared = nil
		x.mu.Unlock()
	}()
	for {
		if x.mustCatchUp() {
			if err := x.readAlone(ctx, func() bool { return !x.hasHole() }); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-x.wakeRead:
			if x.mustMove() {
				return errMoved
			}
			if err := x.takeSharedErr(); err != nil {
				return err
			}
		case t := <-x.ticks:
			x.probeLag(ctx, t.at, x.r.cfg.lagAware != nil)
			x.keepUp(s.present())
			if err := x.look(t, false); err != nil {
				return err
			}
		}
	}
}

// mustCatchUp reports whether the shared feed has passed something over, and there is room for it now.
func (x *run) mustCatchUp() bool {
	limit := x.r.share()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hole > 0 && !x.paused && !x.ending && x.stopped == nil && x.held() <= limit.capacity/2 && x.bytes <= limit.bytes/2
}

func (x *run) hasHole() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hole > 0
}

func (x *run) caughtUpShared(seq uint64, generation uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attach == generation && x.hole == 0 {
		x.clean, x.left, x.blind = max(x.clean, seq), 0, false
	}
}

// failShared tells a member why it gets nothing.
func (x *run) failShared(err error) {
	x.mu.Lock()
	x.sharedErr = err
	x.mu.Unlock()
	poke(x.wakeRead)
}

func (x *run) takeSharedErr() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.sharedErr
	x.sharedErr = nil
	return err
}
