// Program reader is a whole program that reads a stream in order, as one of any number of processes. It needs a NATS server with JetStream at the usual
// address, and runs until it is interrupted.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
)

// layout is where the messages are stored: producers and readers use the same.
var layout = consumer.SpreadOver("ORDERS", "orders", 64, 0)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, nats.DefaultURL, handle); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, handle consumer.Handler) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// A Reader makes no streams. Somebody has to, with CreateStreams: whoever deploys, the producer, or a program like this one.
	if err := layout.CreateStreams(ctx, js, jetstream.StreamConfig{}); err != nil {
		return err
	}
	publisher, err := consumer.NewPublisher(js, layout) // of a producer, usually another program
	if err != nil {
		return err
	}
	for _, event := range []string{"placed", "paid", "shipped"} {
		if _, err := publisher.Publish(ctx, "order-17", []byte(event)); err != nil {
			return err
		}
	}
	reader, err := consumer.NewReader(js, "order-processors", layout.Partitions(), consumer.WithLayout(layout))
	if err != nil {
		return err
	}
	if err = reader.Process(ctx, handle); errors.Is(err, context.Canceled) { // until a signal
		err = nil
	}
	end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, reader.Close(end))
}

// handle is called for the events of one order in order. When it returns nil the event counts as processed; an error makes it come again.
func handle(_ context.Context, m consumer.Message) error {
	log.Printf("%s: %s", m.Headers.Get(consumer.HeaderKey), m.Data)
	return nil
}
