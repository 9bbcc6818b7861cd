// Program orders shows what a group of readers guarantees, with no server at hand: NATS runs in this process. The events of 40 orders are
// published by key and read by two readers. One of them is killed without a goodbye; the other takes over, and no event is lost or passed
// over. Some are handled twice: which and why is printed.
//
//	go run ./examples/orders
//
// It ends by itself, with exit code 0 if every order has seen all its events in order.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/partigo/parti/consumer"
)

const (
	partitions = 8
	orders     = 40
	killAfter  = 90 // events
)

var events = []string{"placed", "paid", "packed", "shipped", "delivered"}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run plays the scene. Everything that it starts has ended when it returns.
func run(ctx context.Context, out io.Writer) error {
	s, err := newShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	a, errA := s.newReader("a")
	b, errB := s.newReader("b")
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if err := s.share(ctx, a, b); err != nil {
		return err
	}
	fmt.Fprintf(out, "Two readers share %d partitions: a reads %v, b reads %v.\n", partitions, a.Assigned(), b.Assigned())

	if err := s.produce(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d events of %d orders are published, each to the partition of its order.\n\n", orders*len(events), orders)
	if err := s.ledger.wait(ctx, killAfter); err != nil {
		return err
	}
	b.kill()
	killed := time.Now()
	fmt.Fprintf(out, "b is killed after %d events, without a goodbye. Nobody is told.\n", killAfter)
	for len(a.Assigned()) < partitions {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("nobody takes over: %w", err)
		}
	}
	fmt.Fprintf(out, "a has taken over b's partitions %.1f s later: b's heartbeat lives for %v.\n\n", time.Since(killed).Seconds(), ttl)
	if err := s.ledger.waitAll(ctx); err != nil {
		return err
	}
	return s.ledger.print(out)
}

// produce publishes every event of every order. The key decides the partition, so the events of an order stay in order.
func (s *shop) produce(ctx context.Context) error {
	publisher, err := consumer.NewPublisher(s.js, layout)
	if err != nil {
		return err
	}
	for _, event := range events {
		for n := range orders {
			if _, err := publisher.Publish(ctx, fmt.Sprintf("order-%02d", n), []byte(event)); err != nil {
				return err
			}
		}
	}
	return nil
}
