package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
)

// worker is what a process of yours would be. It has a connection for the group and one for its data, so that the one can be taken
// away while the other works.
type worker struct {
	conn, data *nats.Conn
	manager    *parti.Manager
	sink       *fence.KV

	computing chan struct{} // closed when the handler is about to write
	proceed   chan struct{} // closed to let it
	written   chan struct{} // closed when it has tried
	epoch     int64         // of the handler's run; set before computing is closed
	result    error         // of the write; set before written is closed
}

func newWorker(ctx context.Context, ns *server.Server, name string) (*worker, error) {
	w := &worker{computing: make(chan struct{}), proceed: make(chan struct{}), written: make(chan struct{})}
	var err error
	if w.conn, err = nats.Connect("", nats.InProcessServer(ns)); err != nil {
		return nil, err
	}
	if w.data, err = nats.Connect("", nats.InProcessServer(ns)); err != nil {
		return nil, err
	}
	js, err := jetstream.New(w.conn)
	if err != nil {
		return nil, err
	}
	data, err := jetstream.New(w.data)
	if err != nil {
		return nil, err
	}
	if w.sink, err = openSink(ctx, data); err != nil {
		return nil, err
	}
	w.manager, err = parti.NewManager(js, source.Static(parti.Partition{Keys: []string{key}}), strategy.Sticky(),
		parti.WithNamespace("fencing"), parti.WithWorkerID(name), parti.WithHandler(w.handle), parti.WithStorage(jetstream.MemoryStorage),
		parti.WithHeartbeat(500*time.Millisecond, 2*time.Second), parti.WithLeaderLease(time.Second), // fast, so that nobody waits
		parti.WithWindows(time.Second, time.Second, 100*time.Millisecond),
	)
	return w, err
}

// handle claims the key first: from then on no earlier owner can change it. The epoch goes with every write.
func (w *worker) handle(ctx context.Context, o parti.Ownership) error {
	if _, err := w.sink.Claim(ctx, o.Partition.ID(), o.Epoch); err != nil {
		return err
	}
	w.epoch = o.Epoch
	close(w.computing)
	<-w.proceed // a frozen process stands here: ctx ends, and it cannot know
	_, w.result = w.sink.Put(context.WithoutCancel(ctx), o.Partition.ID(), []byte("by "+o.Holder.Worker), o.Epoch)
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
	w.data.Close()
}
