package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/test/checker/ledger"
	"github.com/partigo/parti/test/grouptest"
)

// envSetup tells a reader or producer process what to do, as JSON.
const envSetup = "PARTI_CHAOS_SETUP"

// setup is what a reader or producer process does.
type setup struct {
	URL        string
	Partitions int
	PerStream  int
	// Batch is how many messages a reader fetches and acknowledges at a time; 0: it uses Process.
	Batch int
	TTL   time.Duration // of its heartbeat
	Pace  time.Duration // of a producer between two messages of a partition
	// Together is how many readers there are to be before any of them is given something; 0: it is not waited for.
	Together int
}

const (
	readGroup   = "reading"
	readStream  = "ORDERS"
	readSubject = "orders"
)

func (s setup) layout() consumer.Layout {
	return consumer.SpreadOver(readStream, readSubject, s.Partitions, s.PerStream)
}

// options are a reader's.
func (s setup) options() []consumer.Option {
	o := []consumer.Option{
		consumer.WithLayout(s.layout()),
		consumer.WithManagerOptions(
			parti.WithHeartbeat(s.TTL/5, s.TTL), parti.WithLeaderLease(s.TTL), parti.WithWindows(2*time.Second, time.Second, 200*time.Millisecond),
			parti.WithCooldown(200*time.Millisecond), parti.WithHandoffTimeout(-1), parti.WithStorage(jetstream.FileStorage),
			parti.WithDampingPeriod(0), // who was killed is given its share as soon as it is back
			parti.WithStartTimeout(patience), parti.WithExpectedWorkers(s.Together),
		),
	}
	if s.Together > 0 {
		o = append(o, consumer.WithManagerOptions(parti.WithWindows(patience/2, time.Second, patience/2)))
	}
	return o
}

// What a reader process prints, one line each: a letter and numbers.
const (
	saysJoined  = 'j'
	saysHanded  = 'd' // partition, epoch, sequence, counter: a message was handed out
	saysDone    = 'p' // the same, and it is acknowledged with the next thing the process does
	saysAttempt = 'a' // partition, epoch, sequence: what follows is an acknowledgement
	saysAnswer  = 'r' // partition, epoch, sequence, ledger.Result
	saysHeld    = 'h' // it has fetched messages, and is about to acknowledge
	saysLost    = 'l' // partition, epoch: its lease has run out
	saysCount   = 'n' // partition, counter: a producer has stored no more than this
)

// speaker prints lines. What was said is with the parent when flush returns, even if the process is killed then.
type speaker struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (s *speaker) say(what byte, numbers ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.WriteByte(what)
	for _, n := range numbers {
		fmt.Fprintf(s.out, " %v", n)
	}
	s.out.WriteByte('\n')
}

func (s *speaker) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out.Flush() != nil {
		os.Exit(1) // nobody listens any more
	}
}

// reading is a reader process.
type reading struct {
	speaker
	setup
	*consumer.Reader
	hold chan struct{} // has a place: the next acknowledgement waits
	pass chan struct{} // lets it go on
}

func connectAs(raw string) (s setup, js jetstream.JetStream, end func(), err error) {
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return s, nil, nil, err
	}
	nc, err := nats.Connect(s.URL, connecting()...)
	if err != nil {
		return s, nil, nil, err
	}
	js, err = jetstream.New(nc)
	return s, js, nc.Close, err
}

// readerMain runs a reader.
func readerMain() error {
	s, js, end, err := connectAs(os.Getenv(envSetup))
	if err != nil {
		return err
	}
	defer end()
	r := &reading{speaker: speaker{out: bufio.NewWriter(os.Stdout)}, setup: s, hold: make(chan struct{}, 1), pass: make(chan struct{}, 1)}
	lost := consumer.Hooks{OnLost: func(p int, epoch int64) { r.say(saysLost, p, epoch); r.flush() }}
	logs := consumer.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))) // shown where the test fails
	if r.Reader, err = consumer.NewReader(js, readGroup, s.Partitions, append(s.options(), consumer.WithHooks(lost), logs)...); err != nil {
		return err
	}
	ctx := context.Background()
	if err := r.Start(ctx); err != nil {
		return err
	}
	r.say(saysJoined)
	r.flush()
	ended := make(chan error, 1)
	go func() { ended <- r.read(ctx) }()
	r.obey()
	limit, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	if err = r.Close(limit); grouptest.Unsaid(err) {
		err = nil
	}
	return errors.Join(err, <-ended)
}

// obey does what the parent says, line by line, until there is no more.
func (r *reading) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "hold":
			r.hold <- struct{}{}
		case "go":
			r.pass <- struct{}{}
		}
	}
}

// read reads until the Reader is closed.
func (r *reading) read(ctx context.Context) (err error) {
	if r.Batch == 0 {
		err = r.Process(ctx, func(_ context.Context, m consumer.Message) error {
			r.say(saysDone, m.Partition, m.Epoch, m.Sequence, string(m.Data))
			r.flush()
			return nil
		})
	}
	for err == nil {
		var ms []consumer.Message
		if ms, err = r.Fetch(ctx, r.Batch); err == nil {
			r.acknowledge(ctx, ms)
		}
	}
	if errors.Is(err, consumer.ErrReaderClosed) {
		return nil
	}
	return err
}

// acknowledge says what was fetched, acknowledges it for each partition, and says what came of it.
func (r *reading) acknowledge(ctx context.Context, ms []consumer.Message) {
	last := map[int]consumer.Message{}
	for _, m := range ms {
		r.say(saysHanded, m.Partition, m.Epoch, m.Sequence, string(m.Data))
		last[m.Partition] = m
	}
	if len(ms) > 0 {
		select {
		case <-r.hold:
			r.say(saysHeld)
			r.flush()
			<-r.pass
		default:
		}
	}
	for _, m := range last {
		r.say(saysAttempt, m.Partition, m.Epoch, m.Sequence)
	}
	r.flush()
	var all sync.WaitGroup
	for _, m := range last {
		all.Go(func() { r.say(saysAnswer, m.Partition, m.Epoch, m.Sequence, resultOf(r.Ack(ctx, m))) })
	}
	all.Wait()
	r.flush()
}

func resultOf(err error) ledger.Result {
	switch {
	case err == nil:
		return ledger.Stored
	case errors.Is(err, consumer.ErrPartitionLost):
		return ledger.Lost
	}
	return ledger.Failed
}
