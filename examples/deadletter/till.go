package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
)

var errNoSuchAccount = errors.New("account 0815 does not exist")

// till takes payments, and writes down what happened.
type till struct {
	out  io.Writer
	done chan struct{} // closed when every payment is settled

	mu      sync.Mutex // handlers of different partitions run at the same time
	began   time.Time
	settled int
	tried   []time.Time // attempts at the bad payment
	buried  time.Time   // when it was given up
	last    time.Time   // when the other customer's last one was done
	after   time.Time   // when the next payment of that customer was handled
}

// handle takes one payment. The first of the bad customer can never work.
func (t *till) handle(_ context.Context, m consumer.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	customer, now := m.Headers.Get(consumer.HeaderKey), time.Now()
	if t.began.IsZero() {
		t.began = now
	}
	var err error
	what := "done"
	switch poison := customer == bad && string(m.Data) == "payment 1"; {
	case poison:
		t.tried = append(t.tried, now)
		err = errNoSuchAccount // consumer.Permanent(err) would spare the other attempts
		what = err.Error()
	case customer == bad && t.after.IsZero():
		t.after = now
	case customer == good:
		t.last = now
	}
	t.say(m, what)
	if err == nil {
		t.settle()
	}
	return err
}

// poisoned is told when a message was given up, and stored at the dead-letter subject.
func (t *till) poisoned(e *consumer.PoisonError, action consumer.PoisonAction) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buried = time.Now()
	t.say(e.Message, fmt.Sprintf("%v after %d attempts", action, e.Attempts))
	t.settle()
}

// say prints a line. Held: mu.
func (t *till) say(m consumer.Message, what string) {
	fmt.Fprintf(t.out, "%5.1f s  partition %d  %s, %s: %s\n", time.Since(t.began).Seconds(), m.Partition, m.Headers.Get(consumer.HeaderKey), m.Data, what)
}

// settle counts a payment. Held: mu.
func (t *till) settle() {
	if t.settled++; t.settled == 2*perCustomer {
		close(t.done)
	}
}

// judge prints the dead letter and checks what has happened.
func (t *till) judge(ctx context.Context, js jetstream.JetStream) error {
	stream, err := js.Stream(ctx, "DEAD")
	if err != nil {
		return err
	}
	letter, err := stream.GetLastMsgForSubject(ctx, deadSubject)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\nAt %s lies %q of %s, with these headers:\n", deadSubject, letter.Data, letter.Header.Get(consumer.HeaderKey))
	for _, name := range []string{consumer.HeaderReason, consumer.HeaderAttempts, consumer.HeaderStream, consumer.HeaderSequence, consumer.HeaderPartition} {
		fmt.Fprintf(t.out, "  %-15s  %s\n", name, letter.Header.Get(name))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.tried) != attempts:
		return fmt.Errorf("it was tried %d times and not %d times", len(t.tried), attempts)
	case t.tried[attempts-1].Sub(t.tried[0]) < 700*time.Millisecond: // 200 + 400 + 800, each between its half and the whole
		return errors.New("the waits did not grow")
	case !t.after.After(t.buried):
		return errors.New("the customer's next payment has overtaken it")
	case letter.Header.Get(consumer.HeaderReason) != errNoSuchAccount.Error():
		return errors.New("the reason is missing")
	}
	fmt.Fprintf(t.out, "\nNothing of %s's partition overtook the message, and what came after it was done.\n", bad)
	if t.last.Before(t.buried) {
		fmt.Fprintf(t.out, "%s, in another partition, did not have to wait.\n", good)
	}
	return nil
}
