// Program deadletter shows what becomes of a message that cannot be processed, with no server at hand: NATS runs in this process. Its
// handler is tried again in place, with growing waits, and nothing of its partition overtakes it; other partitions go on. After the last
// attempt it is published to the dead-letter subject, with the reason, and its partition goes on.
//
//	go run ./examples/deadletter
//
// It ends by itself, with exit code 0 if all that has happened.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
)

var layout = consumer.SubjectPerPartition("PAYMENTS", "payments", 4)

const (
	deadSubject = "dead.payments"
	attempts    = 4
	bad, good   = "alice", "carol" // customers, in different partitions
	perCustomer = 3                // payments
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "deadletter:", err)
		os.Exit(1)
	}
}

// run plays the scene. Everything that it starts has ended when it returns.
func run(ctx context.Context, out io.Writer) (err error) {
	js, end, err := startNATS()
	if err != nil {
		return err
	}
	defer end()
	if err := fill(ctx, js); err != nil {
		return err
	}
	t := &till{out: out, done: make(chan struct{})}
	r, err := consumer.NewReader(js, "tills", layout.Partitions(),
		consumer.WithLayout(layout),
		consumer.WithRetry(consumer.Retry{Attempts: attempts, First: 200 * time.Millisecond, Limit: 5 * time.Second}),
		consumer.WithDeadLetter(deadSubject),
		consumer.WithHooks(consumer.Hooks{OnPoison: t.poisoned}),
		consumer.WithManagerOptions(parti.WithExpectedWorkers(1)), // so that it does not wait for others
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // all payments are settled: come to an end
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := r.Process(ctx, t.handle); !errors.Is(err, context.Canceled) {
		return errors.Join(err, r.Close(context.Background()))
	}
	if err := r.Close(context.Background()); err != nil {
		return err
	}
	return t.judge(context.Background(), js)
}

// fill creates the streams, the one for dead letters too, and publishes the payments of two customers.
func fill(ctx context.Context, js jetstream.JetStream) error {
	dead := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}}
	_, err := js.CreateStream(ctx, dead)
	if err := errors.Join(err, layout.CreateStreams(ctx, js, jetstream.StreamConfig{})); err != nil {
		return err
	}
	publisher, err := consumer.NewPublisher(js, layout)
	for n := 1; n <= perCustomer && err == nil; n++ {
		for _, customer := range []string{bad, good} {
			_, errOne := publisher.Publish(ctx, customer, fmt.Appendf(nil, "payment %d", n))
			err = errors.Join(err, errOne)
		}
	}
	return err
}
