package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
)

// Limit is how long a program waits for anything before it gives up.
const Limit = 3 * time.Minute

// Namespace is every group's.
const Namespace = "bench"

// Setup says what a group is made of. What is left out has a default.
type Setup struct {
	// Partitions is how many there are, numbered from 0.
	Partitions int
	// Source replaces the static list of them.
	Source types.PartitionSource
	// Strategy replaces the sticky one.
	Strategy types.AssignmentStrategy
	// Passive leaves out handlers, so that the ledger stays empty.
	Passive bool
	// Drain is how long the handler of a partition takes to return. Nil: no time.
	Drain func(partition int) time.Duration
	// Options are added to those of every worker.
	Options []parti.Option
	// Server are options of the server.
	Server []natstest.Option
	// URL is a server that runs already, instead of one in this process.
	URL string
}

// Group is a server and the workers on it. Its methods are for one goroutine, unless said.
type Group struct {
	Ledger *Ledger
	Server *natstest.Server // nil where the Setup has a URL

	setup Setup
	url   string

	mu      sync.Mutex // guards what follows
	workers []*Worker
	commits []commit // that leaders have published
	errs    []error  // that nobody waited for, of live workers
}

type commit struct {
	version int64
	began   time.Time
	took    time.Duration
}

// Partitions returns n numbered partitions.
func Partitions(n int) []types.Partition {
	ps := make([]types.Partition, n)
	for i := range ps {
		ps[i] = types.NewPartition("p", fmt.Sprintf("%07d", i))
	}
	return ps
}

// place returns the number of a partition.
func place(p types.Partition) (int, error) { return strconv.Atoi(p.Keys[1]) }

// NewGroup starts a server with file storage. Close ends it.
func NewGroup(s Setup) (*Group, error) {
	if s.Source == nil {
		s.Source = source.Static(Partitions(s.Partitions)...)
	}
	if s.Strategy == nil {
		s.Strategy = strategy.Sticky()
	}
	g := &Group{setup: s, url: s.URL, Ledger: NewLedger(s.Partitions)}
	if g.url == "" {
		server, err := natstest.NewServer(append([]natstest.Option{natstest.WithTCP()}, s.Server...)...)
		if err != nil {
			return nil, err
		}
		g.Server, g.url = server, server.URL()
	}
	return g, nil
}

// Close stops the workers and the server.
func (g *Group) Close() {
	var all sync.WaitGroup
	for _, w := range g.all() {
		all.Go(func() { w.finish() })
	}
	all.Wait()
	if g.Server != nil {
		g.Server.Close()
	}
}

func (g *Group) all() []*Worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*Worker(nil), g.workers...)
}

// Live returns the workers that were neither stopped nor killed.
func (g *Group) Live() []*Worker {
	var live []*Worker
	for _, w := range g.all() {
		if !w.over.Load() {
			live = append(live, w)
		}
	}
	return live
}

// Worker is a Manager with a connection of its own.
type Worker struct {
	Manager *parti.Manager
	Link    *Link

	group   *Group
	dead    atomic.Bool  // its process is gone: nothing it does counts
	over    atomic.Bool  // stopped or dead
	running atomic.Int64 // partitions, by the ledger
	owned   atomic.Int64 // partitions that run, as the Manager says
	version atomic.Int64 // applied last
	applied atomic.Int64 // when, nanoseconds since the Unix epoch
	beat    atomic.Int64 // when its last heartbeat that was stored was sent, likewise
	finish  func()
}

// verbose makes workers log.
var verbose bool

// Make makes a worker that is connected and not started. It may be called from any goroutine.
func (g *Group) Make(opts ...parti.Option) (*Worker, error) {
	w := &Worker{group: g}
	link, err := Connect(g.url, "worker")
	if err != nil {
		return nil, err
	}
	w.Link = link
	w.finish = sync.OnceFunc(w.end)
	all := []parti.Option{
		parti.WithNamespace(Namespace), parti.WithMetrics(measured{worker: w}),
		parti.WithDampingPeriod(0), // the workloads come and go all the time, which is what damping is against
	}
	if verbose {
		all = append(all, parti.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	}
	if !g.setup.Passive {
		all = append(all, parti.WithHandler(w.handle))
	}
	w.Manager, err = parti.NewManager(link.JS, g.setup.Source, g.setup.Strategy, append(append(all, g.setup.Options...), opts...)...)
	if err != nil {
		link.Close()
		return nil, err
	}
	g.mu.Lock()
	g.workers = append(g.workers, w)
	g.mu.Unlock()
	return w, nil
}

// Start makes n workers and starts all of them, at most the given number at a time; 0 is all at once. Connecting is done before.
func (g *Group) Start(n, atOnce int) ([]*Worker, error) {
	ws := make([]*Worker, n)
	for i := range ws {
		var err error
		if ws[i], err = g.Make(); err != nil {
			return nil, err
		}
	}
	if atOnce == 0 {
		atOnce = n
	}
	slots := make(chan struct{}, atOnce)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, w := range ws {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = w.Start()
			<-slots
		})
	}
	all.Wait()
	return ws, errors.Join(errs...)
}

// handle is every worker's handler.
func (w *Worker) handle(ctx context.Context, o parti.Ownership) error {
	n, err := place(o.Partition)
	if err != nil {
		return err
	}
	w.group.Ledger.start(n, w, o.Epoch)
	<-ctx.Done()
	if drain := w.group.setup.Drain; drain != nil && !w.dead.Load() {
		time.Sleep(drain(n))
	}
	w.group.Ledger.end(n, w, o.Epoch)
	return nil
}

// Start starts the worker.
func (w *Worker) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	return w.Manager.Start(ctx)
}

// Stop stops the worker in good order and closes its connection. That its goodbye was not stored in time is no error on a busy machine; what others do
// about it is in the figures.
func (w *Worker) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	w.over.Store(true)
	err := w.Manager.Stop(ctx)
	w.Link.Close()
	if grouptest.Unsaid(err) {
		return nil
	}
	return err
}

// Kill ends the worker as kill -9 does: its network is gone for good, and its handlers do not count any more. It returns when
// that was.
func (w *Worker) Kill() time.Time {
	w.over.Store(true)
	w.Link.Cut()
	at := time.Now()
	w.group.Ledger.killed(w)
	go w.finish() // what is left of it in this process must not use the processor; Close waits for it
	return at
}

// end releases what the worker has in this process.
func (w *Worker) end() {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	if w.dead.Load() {
		cancel()
		w.Link.Close()
	}
	_ = w.Manager.Stop(ctx) // its errors are those of a process that is gone, or at the end of the program
	cancel()
	w.Link.Close()
}

// LastBeat returns when the last heartbeat was sent that the server took.
func (w *Worker) LastBeat() time.Time { return time.Unix(0, w.beat.Load()) }

// Running returns how many partitions run here, by the ledger.
func (w *Worker) Running() int { return int(w.running.Load()) }

// Applied returns the version of the commit applied last, and when that was.
func (w *Worker) Applied() (version int64, at time.Time) {
	return w.version.Load(), time.Unix(0, w.applied.Load())
}
