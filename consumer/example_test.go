package consumer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
)

func Example() {
	server, err := natstest.NewServer() // a NATS server in this process
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := server.Connect("example")
	if err != nil {
		log.Fatal(err)
	}
	js := client.JS()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	layout := consumer.SpreadOver("ORDERS", "orders", 16, 0)
	if err := layout.CreateStreams(ctx, js, jetstream.StreamConfig{}); err != nil {
		log.Fatal(err)
	}
	publisher, err := consumer.NewPublisher(js, layout)
	if err != nil {
		log.Fatal(err)
	}
	for _, event := range []string{"placed", "paid", "shipped"} {
		if _, err := publisher.Publish(ctx, "order-17", []byte(event)); err != nil {
			log.Fatal(err)
		}
	}

	reader, err := consumer.NewReader(js, "order-processors", layout.Partitions(), consumer.WithLayout(layout),
		consumer.WithManagerOptions(parti.WithExpectedWorkers(1))) // so that it does not wait for others
	if err != nil {
		log.Fatal(err)
	}
	for left := 3; left > 0; {
		messages, err := reader.Fetch(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range messages {
			fmt.Println(m.Headers.Get(consumer.HeaderKey), string(m.Data))
		}
		if err := reader.Ack(ctx, messages...); err != nil {
			log.Fatal(err)
		}
		left -= len(messages)
	}
	if err := reader.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-17 placed
	// order-17 paid
	// order-17 shipped
}
