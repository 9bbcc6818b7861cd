package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/bench/rig"
	"github.com/partigo/parti/test/grouptest"
)

// group is a server, its producer, and the readers. Its methods are for one goroutine.
type group struct {
	layout   consumer.Layout
	timing   rig.Timing
	opts     []consumer.Option
	server   *natstest.Server
	producer *rig.Link
	ledger   *ledger
	made     []*reader
	live     []*reader
	rest     time.Duration // the longest silence at rest
}

// reader is a Reader with a connection of its own, and a handler that returns at once.
type reader struct {
	*consumer.Reader
	number int
	link   *rig.Link
	dead   atomic.Bool
	work   sync.WaitGroup
}

func newGroup(layout consumer.Layout, t rig.Timing, opts []consumer.Option) (*group, error) {
	g := &group{layout: layout, timing: t, opts: opts, ledger: newLedger(layout.Partitions())}
	var err error
	if g.server, err = natstest.NewServer(natstest.WithTCP()); err != nil {
		return nil, err
	}
	if g.producer, err = rig.Connect(g.server.URL(), "producer"); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
		defer cancel()
		err = layout.CreateStreams(ctx, g.producer.JS, jetstream.StreamConfig{})
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *group) close() {
	var all sync.WaitGroup
	for _, r := range g.made {
		all.Go(func() { _ = r.end() })
	}
	all.Wait()
	if g.producer != nil {
		g.producer.Close()
	}
	g.server.Close()
}

// join adds n readers at the same moment.
func (g *group) join(n int) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		r, err := g.make()
		if err != nil {
			return err
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
			defer cancel()
			errs[i] = r.Start(ctx)
			r.work.Go(func() { _ = r.Process(context.Background(), r.handle(g.ledger)) }) // until the Reader is closed
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (g *group) make() (*reader, error) {
	link, err := rig.Connect(g.server.URL(), "reader")
	if err != nil {
		return nil, err
	}
	r := &reader{number: len(g.made), link: link}
	opts := append([]consumer.Option{
		consumer.WithLayout(g.layout), consumer.WithHooks(consumer.Hooks{OnCommitted: g.ledger.committed}),
		consumer.WithManagerOptions(append(g.timing.Options(), rig.Prompt(50*time.Millisecond)...)...),
	}, g.opts...)
	if r.Reader, err = consumer.NewReader(link.JS, rig.Namespace, g.layout.Partitions(), opts...); err != nil {
		link.Close()
		return nil, err
	}
	g.made, g.live = append(g.made, r), append(g.live, r)
	return r, nil
}

func (r *reader) handle(l *ledger) consumer.Handler {
	return func(_ context.Context, m consumer.Message) error {
		l.record(r, m)
		return nil
	}
}

// leave closes a reader in good order: the one that joined last.
func (g *group) leave() error {
	r := g.live[len(g.live)-1]
	g.live = g.live[:len(g.live)-1]
	return r.end()
}

// crash cuts a random reader off for good, as kill -9 does, at any moment between two heartbeats.
func (g *group) crash() error {
	time.Sleep(rand.N(g.timing.Interval))
	i := rand.IntN(len(g.live))
	r := g.live[i]
	g.live = slices.Delete(slices.Clone(g.live), i, i+1)
	r.link.Cut()
	r.dead.Store(true) // what it does from now on does not count
	return nil
}

// end closes the reader, or ends what is left in this process of one that has crashed.
func (r *reader) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
	defer cancel()
	if r.dead.Load() {
		cancel()
	}
	err := r.Close(ctx)
	r.work.Wait()
	r.link.Close()
	if grouptest.Unsaid(err) { // on a busy machine; what others do about it is in the figures
		return nil
	}
	return err
}

// waitShared waits until the live readers own everything, each its part.
func (g *group) waitShared() error {
	share := g.layout.Partitions() / len(g.live)
	return rig.Wait(rig.Limit, "readers that each have their part", func() bool {
		n := 0
		for _, r := range g.live {
			have := len(r.Assigned())
			if have < share {
				return false
			}
			n += have
		}
		return n == g.layout.Partitions()
	})
}

// load publishes one message of each key at a time, evenly paced.
type load struct {
	done chan struct{}
	once sync.Once
	all  sync.WaitGroup
	sent atomic.Uint64 // messages of each key
	err  error
}

// produce begins to publish.
func (g *group) produce() *load {
	l := &load{done: make(chan struct{})}
	l.all.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(*paceFlag))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-l.done:
				return
			}
			n := l.sent.Load() + 1
			for p := range g.layout.Partitions() {
				if _, err := g.producer.JS.PublishAsync("bench."+strconv.Itoa(p), message(n)); err != nil {
					l.err = fmt.Errorf("publish: %w", err)
					return
				}
			}
			l.sent.Store(n)
		}
	})
	return l
}

// stop ends the load and returns when everything is stored.
func (l *load) stop() error {
	l.once.Do(func() { close(l.done) })
	l.all.Wait()
	return l.err
}

// published returns how many messages of each key there are. It is for after stop.
func (l *load) published() uint64 { return l.sent.Load() }
