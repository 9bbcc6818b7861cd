package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
)

// How the parent tells a worker process what it is.
const (
	envURL = "PARTI_CHAOS_URL" // of the server
	envID  = "PARTI_CHAOS_ID"  // the given worker ID; empty: one from the pool
)

const (
	interval   = 600 * time.Millisecond
	ttl        = 3 * time.Second // a shorter one has requests time out, and leases run out for good, while the machine compiles
	partitions = 6
	sinkBucket = "sink"
)

// event is one line that a worker process prints.
type event struct {
	What      string // see below
	Partition string `json:",omitempty"`
	Epoch     int64  `json:",omitempty"`
	Highest   int64  `json:",omitempty"` // with refused: what the sink has seen
	Text      string `json:",omitempty"` // the ID with joined, the cause with ended, the error with failed
}

// What happens in a worker process. Between attempt and its result there is nothing but the call of the sink.
const (
	joined  = "joined"
	began   = "began"   // a handler
	ended   = "ended"   // a handler
	held    = "held"    // a handler has checked its context, and is about to write
	passing = "passing" // nobody is held any more: what was said of it before is over
	attempt = "attempt" // to write
	stored  = "stored"
	refused = "refused" // as stale
	failed  = "failed"  // in any other way
)

// child is a worker process.
type child struct {
	sink *fence.KV

	mu   sync.Mutex // guards out and gate
	out  *json.Encoder
	gate chan struct{} // nil: handlers pass; otherwise they wait for it to be closed
}

// workerMain runs a worker.
func workerMain() error { return (&child{out: json.NewEncoder(os.Stdout)}).run() }

func (c *child) run() (err error) {
	conn, err := nats.Connect(os.Getenv(envURL), connecting()...)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.sink, err = fence.OpenKV(ctx, js, sinkBucket); err != nil {
		return err
	}
	opts := append(settings(), parti.WithHandler(c.handle))
	if id := os.Getenv(envID); id != "" {
		opts = append(opts, parti.WithWorkerID(id))
	}
	m, err := parti.NewManager(js, source.Static(grouptest.Numbered(partitions)...), strategy.Sticky(), opts...)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	c.say(event{What: joined, Text: m.WorkerID()})
	c.obey()
	stop, cancelStop := context.WithTimeout(context.Background(), patience/2)
	defer cancelStop()
	if err := m.Stop(stop); err != nil && !grouptest.Unsaid(err) {
		return err
	}
	return nil
}

// connecting are the options of a process's connection.
func connecting() []nats.Option {
	return []nats.Option{nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}
}

// settings are those of all workers. A frozen process may be thawed after any time, so nobody waits
// for a handler only because it does not answer: a lease that has run out releases it.
func settings() []parti.Option {
	return []parti.Option{
		parti.WithNamespace("chaos"), parti.WithHeartbeat(interval, ttl), parti.WithLeaderLease(ttl),
		parti.WithWindows(2*time.Second, time.Second, 200*time.Millisecond), parti.WithCooldown(200 * time.Millisecond),
		parti.WithHandoffTimeout(-1), parti.WithStorage(jetstream.MemoryStorage),
		parti.WithDampingPeriod(0), // who was killed is given its share as soon as it is back, also if it had joined after the others
	}
}

// obey does what the parent says, line by line, until there is no more.
func (c *child) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		c.mu.Lock()
		switch {
		case lines.Text() == "hold" && c.gate == nil:
			c.gate = make(chan struct{})
		case lines.Text() == "go" && c.gate != nil:
			c.sayLocked(event{What: passing})
			close(c.gate)
			c.gate = nil
		}
		c.mu.Unlock()
	}
}

func (c *child) say(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sayLocked(e)
}

// sayLocked is say. Held: mu.
func (c *child) sayLocked(e event) {
	if err := c.out.Encode(e); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// handle takes the partition over at the sink, and writes again and again. Between its look at the context and its write it computes
// something: that is where a freeze does harm. When the parent says hold, it computes until the parent says go.
func (c *child) handle(ctx context.Context, o parti.Ownership) error {
	id := o.Partition.ID()
	c.say(event{What: began, Partition: id, Epoch: o.Epoch})
	defer func() { c.say(event{What: ended, Partition: id, Epoch: o.Epoch, Text: fmt.Sprint(context.Cause(ctx))}) }()
	for ctx.Err() == nil {
		c.compute(id, o.Epoch)
		if !c.write(id, o) {
			return nil
		}
	}
	return nil
}

func (c *child) compute(partition string, epoch int64) {
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	gate := c.gate
	if gate != nil {
		c.sayLocked(event{What: held, Partition: partition, Epoch: epoch}) // never after passing
	}
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// write writes once, whatever has become of the handler's context, and reports whether to go on.
func (c *child) write(id string, o parti.Ownership) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	e := event{What: stored, Partition: id, Epoch: o.Epoch}
	c.say(event{What: attempt, Partition: id, Epoch: o.Epoch})
	_, err := c.sink.Put(ctx, id, []byte(o.Holder.Worker), o.Epoch)
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		e.What, e.Highest = refused, stale.Highest
	case err != nil:
		e.What, e.Text = failed, err.Error()
	}
	c.say(e)
	return err == nil
}
