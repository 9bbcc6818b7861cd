package parti

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/heartbeat"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// feedBuffer is how many live messages may wait for the feed's goroutine. What overflows is lost, and found by the next renewal
// of the leader or by reading after silence.
const feedBuffer = 256

// feed is this worker's one stream of live changes: the leader key, the commit, its own heartbeat, the order that drains it, and the
// heartbeats of those it waits for. One goroutine reads it and hands each entry to route; route must not block.
type feed struct {
	conn       *nats.Conn
	namespace  string
	route      func(kv.Entry)
	connection func(nats.Status)
	log        *slog.Logger

	messages chan *nats.Msg
	status   chan nats.Status
	stop     chan struct{}
	done     chan struct{}

	mu     sync.Mutex // guards everything below; never held over a wait
	closed bool
	subs   map[string]*nats.Subscription
	// own and followed are the workers whose heartbeats are wanted.
	own      string
	followed []string
}

func newFeed(conn *nats.Conn, namespace string, log *slog.Logger, route func(kv.Entry), connection func(nats.Status)) *feed {
	return &feed{
		conn: conn, namespace: namespace, route: route, connection: connection, log: log,
		messages: make(chan *nats.Msg, feedBuffer), stop: make(chan struct{}), done: make(chan struct{}),
		subs: map[string]*nats.Subscription{},
	}
}

// fixedKeys are followed by every worker.
var fixedKeys = []string{"election.leader", "assignment._commit"}

// start subscribes and begins to read. Whatever it returns, close is called when it has returned.
func (f *feed) start() error {
	f.status = f.conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	if err := f.resubscribe(); err != nil {
		close(f.done)
		return err
	}
	go f.run()
	return nil
}

// close unsubscribes, stops reading, and waits for the goroutine.
func (f *feed) close() {
	close(f.stop)
	<-f.done
	f.conn.RemoveStatusListener(f.status)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for subject, sub := range f.subs {
		_ = sub.Unsubscribe() // fails on a closed connection only, which has no subscriptions
		delete(f.subs, subject)
	}
}

func (f *feed) run() {
	defer close(f.done)
	for {
		select {
		case m := <-f.messages:
			e, err := kv.ParseLive(f.namespace, m)
			if err != nil {
				f.log.Warn("live message ignored", "error", err)
				continue
			}
			f.route(e)
		case s := <-f.status:
			f.connection(s)
		case <-f.stop:
			return
		}
	}
}

// resubscribe makes every subscription anew, because the present ones bring nothing.
func (f *feed) resubscribe() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for subject, sub := range f.subs {
		_ = sub.Unsubscribe()
		delete(f.subs, subject)
	}
	return f.adjust()
}

// setOwn follows the heartbeat of this worker, and the order that drains it.
func (f *feed) setOwn(worker string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = worker
	return f.adjust()
}

// Follow makes the heartbeats of exactly these workers arrive.
func (f *feed) Follow(workers []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followed = workers
	return f.adjust()
}

// fewWorkers is up to how many heartbeats are subscribed to one by one; beyond that, all of them are.
const fewWorkers = 32

// adjust makes the subscriptions what they should be. Held: mu.
func (f *feed) adjust() error {
	if f.closed {
		return nil
	}
	want := map[string]bool{}
	add := func(key string) { want[kv.LiveSubject(f.namespace, key)] = true }
	for _, key := range fixedKeys {
		add(key)
	}
	if f.own != "" {
		add(types.ControlKey(types.ControlDrain, f.own, ""))
	}
	if len(f.followed) > fewWorkers {
		add(heartbeat.KeyPrefix + "*")
	} else {
		if f.own != "" {
			add(heartbeat.KeyPrefix + f.own)
		}
		for _, w := range f.followed {
			add(heartbeat.KeyPrefix + w)
		}
	}
	var errs []error
	for subject := range want {
		if f.subs[subject] != nil {
			continue
		}
		sub, err := f.conn.ChanSubscribe(subject, f.messages)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.subs[subject] = sub
	}
	for subject, sub := range f.subs {
		if !want[subject] {
			_ = sub.Unsubscribe()
			delete(f.subs, subject)
		}
	}
	return errors.Join(errs...)
}
