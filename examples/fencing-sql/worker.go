package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
)

// worker is what a process of yours would be.
type worker struct {
	conn    *nats.Conn
	db      *sql.DB
	manager *parti.Manager
	amount  int

	computing chan struct{} // closed when the handler is about to write
	proceed   chan struct{} // closed to let it
	written   chan struct{} // closed when it has tried
	epoch     int64         // of the handler's run; set before computing is closed
	result    error         // of the transaction; set before written is closed
}

func newWorker(ns *server.Server, db *sql.DB, name string, amount int) (*worker, error) {
	w := &worker{db: db, amount: amount, computing: make(chan struct{}), proceed: make(chan struct{}), written: make(chan struct{})}
	if name != "a" {
		close(w.proceed) // only a is frozen
	}
	var err error
	if w.conn, err = nats.Connect("", nats.InProcessServer(ns)); err != nil {
		return nil, err
	}
	js, err := jetstream.New(w.conn)
	if err != nil {
		return nil, err
	}
	w.manager, err = parti.NewManager(js, source.Static(parti.Partition{Keys: []string{account}}), strategy.Sticky(),
		parti.WithNamespace("fencing"), parti.WithWorkerID(name), parti.WithHandler(w.handle), parti.WithStorage(jetstream.MemoryStorage),
		parti.WithHeartbeat(500*time.Millisecond, 2*time.Second), parti.WithLeaderLease(time.Second), // fast, so that nobody waits
		parti.WithWindows(time.Second, time.Second, 100*time.Millisecond),
	)
	return w, err
}

// handle makes one payment. Its epoch goes into the transaction.
func (w *worker) handle(ctx context.Context, o parti.Ownership) error {
	w.epoch = o.Epoch
	close(w.computing)
	<-w.proceed // a frozen process stands here: ctx ends, and it cannot know
	w.result = payIn(context.WithoutCancel(ctx), w.db, o, w.amount)
	close(w.written)
	<-ctx.Done()
	return nil
}

// await waits for a step of the handler.
func (w *worker) await(ctx context.Context, step <-chan struct{}) error {
	select {
	case <-step:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("the handler does not come that far"), ctx.Err())
	}
}

func (w *worker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.manager.Stop(ctx) // the one whose connection is closed cannot say goodbye
	w.conn.Close()
}
