package parti_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// startServer starts NATS in this process.
func startServer() *natstest.Server {
	server, err := natstest.NewServer(natstest.WithRequestTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	return server
}

// connect returns a connection that is the caller's to close.
func connect(server *natstest.Server) *nats.Conn {
	conn, err := nats.Connect("", nats.InProcessServer(server), nats.Timeout(time.Minute)) // where a machine may be busy
	if err != nil {
		log.Fatal(err)
	}
	return conn
}

// untilPrinted calls f with a context that ends when as many lines have been printed, which on a busy machine takes its time, or after a minute.
func untilPrinted(lines int, f func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	var reader sync.WaitGroup
	reader.Go(func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			if fmt.Fprintln(stdout, in.Text()); lines == 1 {
				cancel()
			}
			lines--
		}
	})
	f(ctx)
	os.Stdout = stdout
	w.Close()
	reader.Wait()
	r.Close()
}

// newManager returns the Manager of a group of one, which need not wait for others. Its connection ends with the server.
func newManager(server *natstest.Server, opts ...parti.Option) *parti.Manager {
	client, err := server.Connect("example")
	if err != nil {
		log.Fatal(err)
	}
	opts = append([]parti.Option{parti.WithExpectedWorkers(1), parti.WithStorage(jetstream.MemoryStorage)}, opts...)
	mgr, err := parti.NewManager(client.JS(), source.Static(types.NewPartition("p")), strategy.Sticky(), opts...)
	if err != nil {
		log.Fatal(err)
	}
	return mgr
}

// start returns when the Manager follows its first commit.
func start(mgr *parti.Manager) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := mgr.Start(ctx); err != nil {
		log.Fatal(err)
	}
	if err := mgr.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}
}
