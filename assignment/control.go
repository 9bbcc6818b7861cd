package assignment

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	// controlFeedBuffer is how many live changes of orders may wait. What overflows is found by the next listing.
	controlFeedBuffer = 1024
	// controlListing is how often all orders are listed without a reason.
	controlListing = 30 * time.Second
	// controlAnswerTTL is how long an answer can be read, and for how long an evicted partition is kept off its worker.
	controlAnswerTTL = time.Hour
	// controlDrainTTL is how long a drain outlives its worker. While the worker is there it is renewed at every half of it.
	controlDrainTTL = 24 * time.Hour
)

// paper is an order as the store has it.
type paper struct {
	types.ControlOrder
	key      string
	revision uint64
	stored   time.Time // by the server's clock
	bad      error     // why it is no order
}

// standing reports whether the order binds the leader.
func (p *paper) standing() bool {
	switch p.Kind {
	case types.ControlDrain:
		return p.Drains()
	case types.ControlEvictWorker:
		return p.State == types.ControlAccepted
	case types.ControlEvictPartition:
		return p.State == types.ControlAccepted || p.State == types.ControlDone
	}
	return false
}

// reply is what shall become of an order.
type reply struct {
	paper
	ttl time.Duration
}

// desk reads the operators' orders and writes the answers. The calculator's loop judges them; nothing that is written under control.*
// can make either wait or fail.
//
// One goroutine does all its I/O. What it knows lies behind a mutex that is never held over a call.
type desk struct {
	cfg   *Config
	nudge func() // tells the loop that something has changed
	wake  chan struct{}

	mu      sync.Mutex
	papers  map[string]*paper // a marker has an entry without a state, so that an older listing does not bring it back
	open    map[string]*paper // those of them that wait for an answer
	bound   map[string]*paper // those that stand
	highest uint64
	listed  bool
	replies map[string]reply
	ending  map[types.Holder]uint64 // workers whose key is to be deleted, at this revision
}

func newDesk(cfg *Config, nudge func()) *desk {
	return &desk{
		cfg: cfg, nudge: nudge, wake: make(chan struct{}, 1),
		papers: map[string]*paper{}, open: map[string]*paper{}, bound: map[string]*paper{},
		replies: map[string]reply{}, ending: map[types.Holder]uint64{},
	}
}

// pile is a copy of what lies on the desk.
type pile struct {
	standing  map[string]paper
	open      map[string]bool // keys of all that are open
	next      []paper         // the open ones, the oldest first; none while answers are being written
	undrained map[string]bool // workers of which the last order says that they are drained no more
}

// look returns what there is; false before the first complete listing.
func (d *desk) look() (pile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listed {
		return pile{}, false
	}
	p := pile{standing: make(map[string]paper, len(d.bound)), open: make(map[string]bool, len(d.open)), undrained: make(map[string]bool)}
	for key, x := range d.bound {
		p.standing[key] = *x
	}
	for _, x := range d.papers {
		if x.Kind == types.ControlUndrain && x.State == types.ControlDone {
			p.undrained[x.Worker] = true
		}
	}
	for key, x := range d.open {
		p.open[key] = true
		if len(d.replies) == 0 { // else what they change is not in force yet
			p.next = append(p.next, *x)
		}
	}
	slices.SortFunc(p.next, func(a, b paper) int { return int(int64(a.revision) - int64(b.revision)) })
	return p, true
}

// answer has the replies written, where the order is still the one that each answers. Replies of one call are written together.
func (d *desk) answer(replies ...reply) {
	d.mu.Lock()
	before := len(d.replies)
	for _, r := range replies {
		if _, waits := d.replies[r.key]; !waits {
			d.replies[r.key] = r
		}
	}
	more := len(d.replies) > before
	d.mu.Unlock()
	if more {
		poke(d.wake)
	}
}

// end has the worker's key deleted, if it is still at that revision.
func (d *desk) end(h types.Holder, revision uint64) {
	d.mu.Lock()
	d.ending[h] = revision
	d.mu.Unlock()
	poke(d.wake)
}

// run is the desk's goroutine.
func (d *desk) run(ctx context.Context) {
	conn := d.cfg.Control.JetStream().Conn()
	feed := make(chan *nats.Msg, controlFeedBuffer)
	status := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(status)
	sub, err := conn.ChanSubscribe(kv.LiveSubject(d.cfg.Namespace, types.ControlPrefix+"*"), feed)
	if err != nil {
		d.cfg.Logger.Warn("orders are not heard, only listed", "error", err)
	} else {
		defer func() { _ = sub.Unsubscribe() }()
	}
	retry := backoff.New(50*time.Millisecond, min(controlListing, d.cfg.HeartbeatTTL/4)) // nothing is decided before the first listing
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failing streak // before the first listing that succeeds
	known := false
	list := func() {
		err := d.list(ctx)
		if !known && ctx.Err() == nil {
			failing.tell(d.cfg.OnOrders, err)
			known = err == nil
		}
		if err == nil {
			retry.Reset()
			timer.Reset(controlListing)
		} else {
			timer.Reset(retry.Next())
		}
	}
	hear := func(m *nats.Msg) {
		if e, err := kv.ParseLive(d.cfg.Namespace, m); err == nil && d.observe(e) {
			d.nudge()
		}
	}
	between := func() { // many answers must not make the feed overflow, also with what is heard of them
		for {
			select {
			case m := <-feed:
				hear(m)
			default:
				return
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-feed:
			hear(m)
		case <-status:
			list()
		case <-timer.C:
			list()
		case <-d.wake:
			written, again := d.write(ctx, between)
			if again { // not at once: what does not work now may not work for long
				timer.Reset(time.Second)
			}
			if written || !again {
				d.nudge()
			}
		}
	}
}

// list takes over a complete listing.
func (d *desk) list(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, d.cfg.RequestTimeout)
	defer cancel()
	d.mu.Lock()
	known, highest := maps.Clone(d.papers), d.highest
	d.mu.Unlock()
	entries, err := d.cfg.Control.List(ctx, types.ControlPrefix+"*")
	if err != nil {
		if parent.Err() == nil {
			d.cfg.Logger.Warn("orders could not be listed", "error", err)
		}
		return err
	}
	var newest uint64
	for _, e := range entries {
		newest = max(newest, e.Revision)
		d.observe(e)
	}
	d.mu.Lock()
	if newest >= highest { // else it is older than what is known
		for key, p := range known {
			if _, there := entries[key]; !there && d.papers[key] == p {
				d.drop(key)
			}
		}
	}
	d.listed = true
	d.mu.Unlock()
	d.nudge()
	return nil
}

func (d *desk) drop(key string) {
	delete(d.papers, key)
	delete(d.open, key)
	delete(d.bound, key)
	delete(d.replies, key)
}

// observe takes over an entry if it is newer than what is known of the key.
func (d *desk) observe(e kv.Entry) bool {
	p := &paper{key: e.Key, revision: e.Revision, stored: e.Created}
	if !e.Absent() {
		p.ControlOrder, p.bad = types.DecodeControlOrder(e.Key, e.Value)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.highest = max(d.highest, e.Revision)
	if was := d.papers[e.Key]; was != nil && was.revision >= e.Revision {
		return false
	}
	d.drop(e.Key)
	d.papers[e.Key] = p
	switch {
	case e.Absent():
	case p.bad != nil, !p.Answered():
		d.open[e.Key] = p
	case p.standing():
		d.bound[e.Key] = p
	}
	return true
}

// write does what the loop has decided, the oldest order first. It reports whether something was written, and is to be tried again. What could not be
// written is judged anew.
func (d *desk) write(ctx context.Context, between func()) (written, again bool) {
	d.mu.Lock()
	replies, ending := slices.Collect(maps.Values(d.replies)), d.ending
	d.ending = map[types.Holder]uint64{}
	d.mu.Unlock()
	for h, revision := range ending {
		call, cancel := context.WithTimeout(ctx, d.cfg.RequestTimeout)
		_, err := d.cfg.Heartbeats.Delete(call, heartbeatPrefix+h.Worker, revision)
		cancel()
		if err == nil {
			d.cfg.Logger.Warn("worker evicted on an operator's order", "holder", h)
		}
		// Where it failed, the loop sees the key at another revision or as it was, and asks again.
		again = again || err != nil
	}
	slices.SortFunc(replies, func(a, b reply) int { return int(int64(a.revision) - int64(b.revision)) })
	for _, r := range replies {
		ok := d.reply(ctx, r)
		written, again = written || ok, again || !ok
		between()
	}
	return written, again
}

func (d *desk) reply(ctx context.Context, r reply) bool {
	r.By, r.AnsweredAt = d.cfg.Self.Worker, time.Now().UTC()
	value, err := r.Encode()
	if err != nil { // cannot be: it was decoded
		value = []byte(`{"state":"refused","reason":"malformed"}`)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.RequestTimeout)
	defer cancel()
	rev, err := d.cfg.Control.Put(ctx, r.key, value, r.revision, r.ttl)
	d.mu.Lock()
	if now, waits := d.replies[r.key]; waits && now.revision == r.revision {
		delete(d.replies, r.key)
	}
	d.mu.Unlock()
	switch {
	case err == nil:
		d.cfg.Logger.Info("order answered", "key", r.key, "kind", r.Kind, "worker", r.Worker, "state", r.State, "reason", r.Reason)
		d.observe(kv.Entry{Key: r.key, Value: value, Revision: rev, Created: r.AnsweredAt})
		return true
	case kv.IsConflict(err):
		return false // somebody has written another order, which is or will be heard
	}
	return false
}
