// Program quickstart shows a group at work, with no server at hand: NATS runs in this process. Five workers share 40 partitions;
// the leader is killed, two workers join, and one leaves. What is printed was measured in the handlers, not asked of the library.
//
//	go run ./examples/quickstart
//
// It ends by itself, with exit code 0 if at no time a partition ran twice, and after each event every one ran exactly once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

const partitionCount = 40

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run plays the scenes. Everything that it starts has ended when it returns.
func run(ctx context.Context, out io.Writer) (err error) {
	g, err := newGroup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	p := &page{Writer: out}
	p.intro()

	r, err := g.scene(ctx, func() error { return g.join(ctx, 5) })
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	p.scene(g, "Five workers start", "They know nothing of each other but the name of their group.", r)

	victim := g.leader()
	r, err = g.scene(ctx, func() error { g.kill(victim); return nil })
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	p.scene(g, victim.name+", the leader, is killed without a goodbye", "Its connection is cut and nobody is told. It lives on, cut off: its own lease\n"+
		"ended its handlers after "+seconds(r.lost)+", before others started what they ran.", r)

	r, err = g.scene(ctx, func() error { return g.join(ctx, 2) })
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	p.scene(g, "Two workers join", "They get their share, each partition when its old handler has returned.", r)

	leaver := g.live[1]
	r, err = g.scene(ctx, func() error { return g.leave(ctx, leaver) })
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	p.scene(g, leaver.name+" stops", "It says goodbye, so nobody waits for a lease to run out.", r)

	if err := g.leave(ctx, g.live...); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	runs, err := g.ledger.verdict()
	if err != nil {
		return err
	}
	p.outro(runs)
	return nil
}
