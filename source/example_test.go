package source_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/types"
)

func ExampleStatic() {
	src := source.Static(types.NewPartition("orders", "1"), types.NewPartition("orders", "2"))
	list, err := src.ListPartitions(context.Background())
	fmt.Println(list, err)
	fmt.Println(source.Static(types.NewPartition("orders.1")).Validate() != nil)
	// Output:
	// [orders.1 orders.2] <nil>
	// true
}

func ExampleFunc() {
	tenants := func(context.Context) ([]string, error) { return []string{"acme", "umbrella"}, nil } // your database
	src := source.Func(func(ctx context.Context) ([]types.Partition, error) {
		names, err := tenants(ctx)
		var list []types.Partition
		for _, name := range names {
			list = append(list, types.NewPartition("tenant", name))
		}
		return list, err
	})
	fmt.Println(src.ListPartitions(context.Background()))
	// Output: [tenant.acme tenant.umbrella] <nil>
}

func ExampleNewKV() {
	js, stop := connect() // your own connection
	defer stop()
	ctx := context.Background()
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "config"}); err != nil {
		log.Fatal(err)
	}

	src := source.NewKV(js, "config", "partitions")
	if err := src.Add(ctx, types.NewPartition("orders", "1"), types.NewPartition("orders", "2")); err != nil {
		log.Fatal(err)
	}
	if err := src.Remove(ctx, types.NewPartition("orders", "1")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(src.ListPartitions(ctx))
	// Output: [orders.2] <nil>
}

func ExampleKVSource_Watch() {
	js, stop := connect()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "config"}); err != nil {
		log.Fatal(err)
	}
	src := source.NewKV(js, "config", "partitions")
	changes, err := src.Watch(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := source.NewKV(js, "config", "partitions").Add(ctx, types.NewPartition("orders", "1")); err != nil { // anybody, anywhere
		log.Fatal(err)
	}
	for range changes {
		if list, err := src.ListPartitions(ctx); err == nil && len(list) == 1 {
			fmt.Println(list)
			cancel() // closes changes
		}
	}
	// Output: [orders.1]
}

// connect stands for nats.Connect and jetstream.New: the examples run without a server at hand.
func connect() (jetstream.JetStream, func()) {
	server, err := natstest.NewServer(natstest.WithRequestTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	client, err := server.Connect("example")
	if err != nil {
		log.Fatal(err)
	}
	return client.JS(), server.Close
}
