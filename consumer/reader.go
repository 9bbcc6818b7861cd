package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/types"
)

// maxCreations is how many server-side consumers one Reader makes at the same time.
const maxCreations = 16

// Reader reads the partitions that its group gives it. It lives once: made, used, closed. All methods are safe for concurrent use.
type Reader struct {
	cfg     config
	js      jetstream.JetStream
	nc      *nats.Conn
	api     string
	group   string
	parts   int
	crowd   map[string]int // partitions of the group by stream
	manager *parti.Manager

	offsets   atomic.Pointer[kv.Store]
	rounds    *rounds
	owned     atomic.Int64
	creations chan struct{}

	generations atomic.Uint32 // of shared feeds: a partition that leaves one and joins the next of its stream must not take the old one for that

	ctx      context.Context // ends when the Reader is closed; for what runs in the background
	cancel   context.CancelFunc
	jobs     sync.WaitGroup
	begin    sync.Once
	started  chan struct{} // closed when the start has succeeded or failed
	startErr error
	closing  chan struct{} // closed when Close was called, or the Manager has ended
	close    sync.Once
	cause    error // why it ends by itself, nil after Close; written before closing is closed
	closed   chan struct{}
	closeErr error

	connMu  sync.Mutex
	conn    context.Context // ends when the connection is made anew
	endConn context.CancelFunc

	checkOffsets chan struct{} // asks for a look at the bucket of offsets

	turn chan struct{} // held by the one Fetch that collects, or by Process or All
	busy atomic.Bool   // Process or All runs
	last []Message     // handed out by Fetch and not all acknowledged; belongs to the holder of turn
	wake chan struct{} // something can be handed out

	mu      sync.Mutex // never held over a call to the server or to user code
	runs    map[int]*run
	alien   map[string]error // why partitions of the Manager cannot be read
	told    map[topic]*told
	ready   []*run // with something to hand out, in the order of their turn
	paused  map[int]bool
	stops   []error // of partitions that were stopped; each is told once
	watches map[string]*watch
	shares  map[string]*shared
}

// NewReader returns a Reader for the partitions 0 to partitions-1 of the group. The group's name is the namespace of its
// parti.Manager; all readers of a group must agree on the number of partitions and on where they are stored. NewReader checks all that can be
// checked without the server and reports every fault at once.
//
// Where a group is given more partitions while readers of before still run, a Reader with a [Layout] reads those that it was not made with too, if
// it is given any; one with a [Resolver] reports them ([Hooks.OnError], [Stats]) and leaves them unread.
//
// The Reader takes part in the group from [Reader.Start] on, or from the first call of Fetch, Process or All.
func NewReader(js jetstream.JetStream, group string, partitions int, opts ...Option) (*Reader, error) {
	cfg := defaultConfig()
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("%w: an option is nil", ErrInvalidConfig))
			continue
		}
		o(&cfg)
	}
	errs = append(errs, cfg.validate(group, partitions))
	r := &Reader{
		cfg: cfg, js: js, group: group, parts: partitions, crowd: map[string]int{},
		creations: make(chan struct{}, maxCreations), started: make(chan struct{}), closing: make(chan struct{}), closed: make(chan struct{}),
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		runs: map[int]*run{}, alien: map[string]error{}, told: map[topic]*told{}, paused: map[int]bool{},
		watches: map[string]*watch{}, shares: map[string]*shared{}, checkOffsets: make(chan struct{}, 1),
	}
	r.rounds = newRounds(r)
	m, err := r.newManager()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	r.manager, r.nc, r.api = m, js.Conn(), kv.APIPrefix(js)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.renewConnection()
	for p := range partitions {
		stream, _ := cfg.resolver(p)
		r.crowd[stream]++
	}
	return r, nil
}

// newManager makes the Manager. What is wrong with the Reader's own arguments is replaced, so that only what is wrong with the
// Manager's options is an error here.
func (r *Reader) newManager() (*parti.Manager, error) {
	list := make([]types.Partition, max(r.parts, 1))
	for p := range list {
		list[p] = types.NewPartition(strconv.Itoa(p))
	}
	var from types.PartitionSource = source.Static(list...)
	place := r.cfg.strategy
	if r.cfg.lagAware != nil && r.cfg.lagAware.validate() == nil {
		follower := newLagFollower(*r.cfg.lagAware, list, r.storedLags)
		from, place = follower, follower
	}
	namespace := r.group
	if groupFault(namespace) != "" {
		namespace = "group"
	}
	managed := append([]parti.Option{parti.WithLogger(r.cfg.log)}, r.cfg.manager...)
	managed = append(managed, parti.WithNamespace(namespace), parti.WithHandler(r.handle))
	return parti.NewManager(r.js, from, place, managed...)
}

// Manager returns the Reader's Manager, for its state, status, assignment and hooks. Do not start or stop it.
func (r *Reader) Manager() *parti.Manager { return r.manager }

// Start makes the Reader take part in its group and returns when it has a worker ID. It may be called more than once. Its context bounds the
// waiting only: when it ends first, the start goes on, and a later call waits for it again. An error of the start itself is final,
// and is what all other methods return then; see parti.Manager.Start for its kinds.
func (r *Reader) Start(ctx context.Context) error {
	if r.isClosing() {
		return r.closedErr()
	}
	r.begin.Do(func() { r.jobs.Go(r.start) })
	select {
	case <-r.started:
		return r.startErr
	case <-r.closing:
		return r.closedErr()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close gives everything back: handlers of Process that run finish their message, what is acknowledged is committed, the partitions are
// released, so that others take over within milliseconds, and everything that the Reader started has ended when Close returns. It may
// be called at any time and more than once; further calls wait for the first. A commit that fails is repeated for 5 s; after that [Hooks.OnLost] tells
// of it, and Close does not.
//
// When ctx ends first, Close stops waiting for handlers, hooks and commits, as parti.Manager.Stop does, and its error names the partitions where one has
// not ended (parti.ErrDrainTimeout); what is not committed then comes again. In a handler of Process, or in a hook, it would wait
// for that one's own end: call it from elsewhere.
//
// When the NATS connection is closed for good, the Reader ends by itself: all methods return an error that wraps [ErrReaderClosed] and
// parti.ErrConnectionClosed, and Close waits for the rest.
func (r *Reader) Close(ctx context.Context) error {
	r.end(ctx, nil)
	select {
	case <-r.closed:
		return r.closeErr
	case <-ctx.Done():
		select { // Stop has ended with ctx, and says more
		case <-r.closed:
			return r.closeErr
		case <-time.After(requestTimeout):
			return ctx.Err()
		}
	}
}

// end begins to close the Reader, once. cause is why, where it was not asked to.
func (r *Reader) end(ctx context.Context, cause error) {
	r.close.Do(func() {
		r.cause = cause
		close(r.closing)
		go func() {
			defer close(r.closed)
			r.begin.Do(func() { r.startErr = r.closedErr(); close(r.started) })
			r.closeErr = r.manager.Stop(ctx)
			if errors.Is(r.closeErr, parti.ErrDrainTimeout) {
				r.closeErr = fmt.Errorf("consumer: a handler of Process or a hook of these partitions has not returned, or their offset could not be stored: %w", r.closeErr)
			}
			r.cancel()
			r.jobs.Wait()
		}()
	})
}

// closedErr is what calls get when closing is closed.
func (r *Reader) closedErr() error {
	if r.cause != nil {
		return fmt.Errorf("%w: %w", ErrReaderClosed, r.cause)
	}
	return ErrReaderClosed
}

// endWithConnection ends a Reader whose connection is closed for good, as its Manager ends itself. It is the Reader's own goroutine.
func (r *Reader) endWithConnection(closed <-chan nats.Status) {
	select {
	case <-closed:
	case <-r.ctx.Done():
		return
	}
	r.cfg.log.Error("the reader ends", "error", parti.ErrConnectionClosed)
	ctx, cancel := context.WithTimeout(context.Background(), r.manager.Config().DrainTimeout)
	defer cancel()
	r.end(ctx, parti.ErrConnectionClosed)
	<-r.ctx.Done() // ctx bounds the end
}

// usable waits for the start and reports why nothing can be done.
func (r *Reader) usable(ctx context.Context) error {
	if err := r.Start(ctx); err != nil {
		return err
	}
	if r.isClosing() {
		return r.closedErr()
	}
	return nil
}

func (r *Reader) isClosing() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

func (r *Reader) isShared(stream string) bool { return r.crowd[stream] > r.cfg.sharedAbove }

// share is what one partition may hold.
func (r *Reader) share() room {
	n := max(int(r.owned.Load()), 1)
	return room{capacity: max(1, min(r.cfg.bufferMsgs, r.cfg.totalMsgs/n)), bytes: max(1, min(r.cfg.bufferBytes, r.cfg.totalBytes/n))}
}

func (r *Reader) add(x *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[x.part] = x
	r.owned.Store(int64(len(r.runs)))
	x.paused = r.paused[x.part] // nobody else knows x yet
}

// remove makes a partition one that is not owned any more.
func (r *Reader) remove(x *run) {
	r.mu.Lock()
	present := r.runs[x.part] == x
	if present {
		delete(r.runs, x.part)
	}
	r.owned.Store(int64(len(r.runs)))
	r.mu.Unlock()
	if present {
		r.cfg.metrics.PartitionGone(x.part)
	}
}

// find returns the present run of a partition.
func (r *Reader) find(partition int) (*run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.runs[partition]; x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("%w: partition %d", ErrNotAssigned, partition)
}

// owning returns the present runs.
func (r *Reader) owning() []*run {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*run, 0, len(r.runs))
	for _, x := range r.runs {
		out = append(out, x)
	}
	return out
}

// enqueue gives the partition a turn.
func (r *Reader) enqueue(x *run) {
	if !x.queued.CompareAndSwap(false, true) {
		return
	}
	r.mu.Lock()
	r.ready = append(r.ready, x)
	r.mu.Unlock()
	poke(r.wake)
}

// next takes the partition whose turn it is, and says how many others wait; nil: none.
func (r *Reader) next() (x *run, others int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ready) == 0 {
		r.ready = nil
		return nil, 0
	}
	x = r.ready[0]
	r.ready = r.ready[1:]
	x.queued.Store(false)
	return x, len(r.ready)
}

// afterLease calls f when the worker's lease has run out, unless stopped before.
func (r *Reader) afterLease(f func()) (stop func()) {
	var timer *time.Timer
	var mu sync.Mutex
	stopped := false
	var arm func()
	arm = func() {
		left := r.manager.Status().LeaseLeft
		mu.Lock()
		defer mu.Unlock()
		switch {
		case stopped:
		case left <= 0:
			stopped = true
			go f()
		default:
			timer = time.AfterFunc(left, arm)
		}
	}
	arm()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		if timer != nil {
			timer.Stop()
		}
	}
}
