package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
)

// layout says where the partitions are stored. Producer and readers use the same one.
var layout = consumer.SubjectPerPartition("ORDERS", "orders", partitions)

// shop is the server, the producer's connection, and everybody who reads.
type shop struct {
	dir     string
	server  *server.Server
	conn    *nats.Conn
	js      jetstream.JetStream
	ledger  *ledger
	readers []*reader
}

func newShop(ctx context.Context) (*shop, error) {
	dir, err := os.MkdirTemp("", "orders-")
	if err != nil {
		return nil, err
	}
	s := &shop{dir: dir, ledger: newLedger()}
	s.server, err = server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.server.Start()
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open connects the producer and creates the stream.
func (s *shop) open(ctx context.Context) (err error) {
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server)); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	return layout.CreateStreams(ctx, s.js, jetstream.StreamConfig{})
}

// close ends what is left, the server last.
func (s *shop) close() {
	var all sync.WaitGroup
	for _, r := range s.readers {
		all.Go(r.end)
	}
	all.Wait()
	if s.conn != nil {
		s.conn.Close()
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
	}
}

// share starts the readers and returns when each has its partitions.
func (s *shop) share(ctx context.Context, readers ...*reader) error {
	for _, r := range readers {
		if err := r.Start(ctx); err != nil {
			return err
		}
		r.begin()
	}
	for _, r := range readers {
		for len(r.Assigned()) != partitions/len(readers) {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("%s does not get its partitions: %w", r.name, err)
			}
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
