package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
)

// Fast settings, so that nobody has to wait for half a minute.
const (
	interval = time.Second            // default 3 s
	ttl      = 3 * time.Second        // default 15 s
	lease    = 3 * time.Second        // default 10 s
	settle   = 500 * time.Millisecond // default 2 s
)

// worker is what a process of yours would be: a connection, a Manager and a handler.
type worker struct {
	name    string
	link    *link
	conn    *nats.Conn
	manager *parti.Manager
}

func newWorker(g *group, name string) (*worker, error) {
	w := &worker{name: name, link: &link{dial: g.server.InProcessConn}}
	var err error
	w.conn, err = nats.Connect("", nats.InProcessServer(w.link), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the default prints each cut
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(w.conn)
	if err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, o parti.Ownership) error {
		g.ledger.start(name, o.Partition.ID(), o.Epoch)
		<-ctx.Done() // yours would work on the partition until then
		g.ledger.end(o.Partition.ID(), context.Cause(ctx))
		return nil
	}
	w.manager, err = parti.NewManager(js, source.Static(g.partitions...), strategy.Sticky(),
		parti.WithNamespace("quickstart"),
		parti.WithWorkerID(name),
		parti.WithHandler(handler),
		parti.WithStorage(jetstream.MemoryStorage),
		parti.WithHeartbeat(interval, ttl),
		parti.WithLeaderLease(lease),
		parti.WithWindows(5*time.Second, 5*time.Second, settle),
		parti.WithCooldown(time.Second),
	)
	return w, err
}

// stop ends the worker in good order.
func (w *worker) stop(ctx context.Context) error {
	err := w.manager.Stop(ctx)
	w.conn.Close()
	return err
}

// bury ends what is left of a worker that was killed: what a process that is gone would not have.
func (w *worker) bury() {
	w.link.cut()
	w.conn.Close()
	if w.manager != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.manager.Stop(ctx) // it cannot say goodbye
	}
}

// leader returns the worker that leads; for the show any other would do too.
func (g *group) leader() *worker {
	for _, w := range g.live {
		if w.manager.IsLeader() {
			return w
		}
	}
	return g.live[0]
}
