package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
)

// Fast settings, so that nobody has to wait for a quarter of a minute.
const (
	interval = 500 * time.Millisecond // default 3 s
	ttl      = 3 * time.Second        // default 15 s
	lease    = 3 * time.Second        // default 10 s
)

// reader is what a process of yours would be: a connection and a Reader.
type reader struct {
	*consumer.Reader
	name   string
	ledger *ledger
	link   *link
	conn   *nats.Conn
	stop   context.CancelFunc
	work   sync.WaitGroup
	dead   atomic.Bool
}

func (s *shop) newReader(name string) (*reader, error) {
	r := &reader{name: name, ledger: s.ledger, link: &link{dial: s.server.InProcessConn}}
	s.readers = append(s.readers, r)
	var err error
	r.conn, err = nats.Connect("", nats.InProcessServer(r.link), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the default prints each cut
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(r.conn)
	if err != nil {
		return nil, err
	}
	r.Reader, err = consumer.NewReader(js, "order-processors", partitions,
		consumer.WithLayout(layout),
		consumer.WithOffsets(consumer.DefaultOffsetsBucket, 1, jetstream.MemoryStorage),
		consumer.WithHooks(consumer.Hooks{OnCommitted: s.ledger.committed}),
		consumer.WithManagerOptions(
			parti.WithWorkerID(name), parti.WithStorage(jetstream.MemoryStorage), parti.WithExpectedWorkers(2),
			parti.WithHeartbeat(interval, ttl), parti.WithLeaderLease(lease),
		),
	)
	return r, err
}

// begin makes the reader process what it gets.
func (r *reader) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.work.Go(func() { _ = r.Process(ctx, r.handle) }) // returns when ctx has ended or the Reader was closed
}

// handle is one event. Of one order there is never more than one at a time, here and in the whole group.
func (r *reader) handle(ctx context.Context, m consumer.Message) error {
	if err := sleep(ctx, 20*time.Millisecond); err != nil { // yours would do something
		return err
	}
	if r.dead.Load() {
		return errors.New("a process that was killed does nothing more")
	}
	r.ledger.record(r.name, m)
	return nil
}

// kill takes the network away at once and for good, and nothing counts that the reader does from now on: kill -9 does no more.
func (r *reader) kill() {
	r.dead.Store(true)
	r.link.cut()
}

// end gives everything back, and ends what is left of a reader that was killed.
func (r *reader) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r.dead.Load() {
		cancel()
	}
	if r.Reader != nil {
		_ = r.Close(ctx) // the one that is cut off cannot say goodbye
	}
	if r.stop != nil {
		r.stop()
	}
	r.work.Wait()
	if r.conn != nil {
		r.conn.Close()
	}
}
