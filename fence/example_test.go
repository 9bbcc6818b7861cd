package fence_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
)

// Two owners of one partition, the earlier of which does not know yet that its time is over.
func ExampleKV() {
	server, err := natstest.NewServer(natstest.WithRequestTimeout(time.Minute))
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := server.Connect("example")
	if err != nil {
		panic(err)
	}
	ctx, js := context.Background(), client.JS()
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "accounts"}); err != nil {
		panic(err)
	}
	sink, err := fence.OpenKV(ctx, js, "accounts")
	if err != nil {
		panic(err)
	}

	_, _ = sink.Put(ctx, "account-17", []byte("100"), 5) // the earlier owner; 5 is its Ownership.Epoch
	now, err := sink.Claim(ctx, "account-17", 9)         // the newer one begins
	fmt.Printf("goes on from %s, %v\n", now.Value, err)
	_, err = sink.Put(ctx, "account-17", []byte("110"), 5) // the earlier one thaws
	fmt.Println(err, errors.Is(err, fence.ErrStale))
	// Output:
	// goes on from 100, <nil>
	// fence: stale epoch: account-17 was to be written under epoch 5, and is at epoch 9 true
}

func ExampleGuard_Do() {
	var guard fence.Guard
	write := func() error { fmt.Println("written"); return nil }
	fmt.Println(guard.Do(context.Background(), "account-17", 9, write))
	fmt.Println(guard.Do(context.Background(), "account-17", 5, write))
	// Output:
	// written
	// <nil>
	// fence: stale epoch: account-17 was to be written under epoch 5, and is at epoch 9
}
