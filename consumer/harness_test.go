package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// world is one group over one server, and the witness who looks at everything that is handed out.
type world struct {
	t   *testing.T
	env *natstest.Env
	js  jetstream.JetStream // of the producer, who has no faults

	producer *natstest.Client
	layout   Layout
	parts    int
	opts     []Option
	ledger   *witness

	next     []int // counter of the last message of each partition
	storage  jetstream.StorageType
	recorded bool // everything that is handed out is told to the ledger

	mu      sync.Mutex
	members []*member
}

// member is one reader of the group with a connection of its own.
type member struct {
	*Reader
	w      *world
	name   string
	client *natstest.Client
	dead   atomic.Bool
	gone   bool
	work   sync.WaitGroup
	stop   context.CancelFunc
}

type worldOption func(*world)

func withLayout(l Layout) worldOption {
	return func(w *world) { w.layout, w.parts = l, l.Partitions() }
}

func withOptions(opts ...Option) worldOption {
	return func(w *world) { w.opts = append(w.opts, opts...) }
}

func withFiles() worldOption { return func(w *world) { w.storage = jetstream.FileStorage } }

// quick are a group's settings with short times.
func quick() Option {
	return WithManagerOptions(parti.WithHeartbeat(time.Second, 4*time.Second), parti.WithLeaderLease(3*time.Second),
		parti.WithWindows(2*time.Second, time.Second, 300*time.Millisecond), parti.WithCooldown(time.Second), parti.WithHandoffTimeout(-1),
		parti.WithDampingPeriod(0)) // who comes and goes is given its share at once
}

// bubble runs a scenario in virtual time, with 8 partitions in one stream unless told otherwise.
func bubble(t *testing.T, scenario func(w *world), opts ...worldOption) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) { runWorld(t, env, scenario, opts) })
}

// realTime is bubble in real time.
func realTime(t *testing.T, scenario func(w *world), opts ...worldOption) {
	t.Helper()
	runWorld(t, natstest.Single(t), scenario, opts)
}

func runWorld(t *testing.T, env *natstest.Env, scenario func(w *world), opts []worldOption) {
	w := &world{t: t, env: env, storage: jetstream.MemoryStorage}
	withLayout(SubjectPerPartition("ORDERS", "orders", 8))(w)
	for _, o := range opts {
		o(w)
	}
	w.producer = env.Connect("producer")
	w.js = w.producer.JS()
	w.next = make([]int, w.parts)
	w.ledger = newWitness(w.parts)
	w.keepOffsets(t)
	t.Cleanup(func() {
		w.closeAll()
		w.judge()
	})
	scenario(w)
}

func (w *world) ctx(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	w.t.Cleanup(cancel)
	return ctx
}

// create creates the streams.
func (w *world) create() {
	w.t.Helper()
	require.NoError(w.t, w.layout.CreateStreams(w.ctx(time.Minute), w.js, jetstream.StreamConfig{Storage: w.storage, AllowDirect: true}))
}

// publish stores n messages in each of the partitions, or in all where none is named, in turns.
func (w *world) publish(n int, partitions ...int) {
	w.t.Helper()
	if len(partitions) == 0 {
		for p := range w.parts {
			partitions = append(partitions, p)
		}
	}
	ctx := w.ctx(time.Hour)
	for range n {
		for _, p := range partitions {
			subject := w.layout.prefix + "." + strconv.Itoa(p)
			w.next[p]++
			w.publishOne(ctx, subject, w.next[p])
		}
	}
}

// publishOne stores one message exactly once, whatever happens to the server.
func (w *world) publishOne(ctx context.Context, subject string, n int) {
	w.t.Helper()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.js.Publish(try, subject, []byte(strconv.Itoa(n)), jetstream.WithMsgID(subject+"/"+strconv.Itoa(n)))
		cancel()
		if err == nil {
			return
		}
		require.NoError(w.t, ctx.Err(), "%v", err)
		time.Sleep(20 * time.Millisecond)
	}
}

// options are those of every member.
func (w *world) options() []Option {
	o := []Option{
		WithLayout(w.layout), WithOffsets(DefaultOffsetsBucket, 1, w.storage), quick(),
		WithManagerOptions(parti.WithStorage(w.storage)),
	}
	return append(o, w.opts...)
}

// join adds a reader that takes part and hands nothing out by itself.
func (w *world) join(opts ...Option) *member {
	w.t.Helper()
	m := w.make(opts...)
	require.NoError(w.t, m.Start(w.ctx(time.Minute)))
	return m
}

// owning makes the streams, publishes n messages to a partition, and returns a reader that owns all partitions, with a context for what
// follows.
func (w *world) owning(n, partition int, opts ...Option) (*member, context.Context) {
	w.t.Helper()
	w.create()
	w.publish(n, partition)
	m := w.join(opts...)
	w.waitOwned(10 * time.Second)
	return m, w.ctx(time.Hour)
}

func (w *world) make(opts ...Option) *member {
	w.t.Helper()
	w.mu.Lock()
	m := &member{w: w, name: fmt.Sprintf("r%d", len(w.members))}
	w.mu.Unlock()
	m.client = w.env.Connect(m.name)
	r, err := NewReader(m.client.JS(), "group", w.parts, append(w.options(), opts...)...)
	require.NoError(w.t, err)
	m.Reader = r
	w.mu.Lock()
	w.members = append(w.members, m)
	w.mu.Unlock()
	return m
}

// process makes the member process what it gets, telling the ledger.
func (m *member) process() { m.processWith(func(context.Context, Message) error { return nil }) }

func (m *member) processWith(h Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.work.Go(func() {
		err := m.Process(ctx, func(ctx context.Context, msg Message) error {
			if err := h(ctx, msg); err != nil {
				return err
			}
			m.w.ledger.record(m.name, msg)
			return nil
		})
		if !errors.Is(err, ErrReaderClosed) && !errors.Is(err, context.Canceled) {
			m.w.t.Errorf("%s: Process: %v", m.name, err)
		}
	})
}

// kill ends the member as kill -9 does.
func (m *member) kill() {
	m.dead.Store(true)
	m.client.Kill()
	m.w.ledger.silence(m.name)
}

// leave closes the member in good order.
func (m *member) leave() {
	m.w.t.Helper()
	m.gone = true
	require.NoError(m.w.t, m.Close(m.w.ctx(time.Minute)))
	m.finish()
}

func (m *member) finish() {
	if m.stop != nil {
		m.stop()
	}
	m.work.Wait()
}

func (w *world) closeAll() {
	var all sync.WaitGroup
	for _, m := range w.members {
		if m.gone {
			continue
		}
		if !m.dead.Load() {
			m.client.Gate().Heal()
		}
		all.Go(func() {
			limit := time.Minute
			if m.dead.Load() {
				limit = time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := m.Close(ctx); err != nil && !m.dead.Load() {
				w.t.Errorf("%s: close: %v", m.name, err)
			}
			m.finish()
			<-m.closed
		})
	}
	all.Wait()
}

// restart restarts the server, and ends all faults of the network.
func (w *world) restart() {
	w.env.Restart()
	for _, m := range w.live() {
		m.client.Gate().Heal()
	}
}

// live returns the members that take part.
func (w *world) live() (out []*member) {
	for _, m := range w.members {
		if !m.dead.Load() && !m.gone {
			out = append(out, m)
		}
	}
	return out
}

// waitOwned waits until the live members own all partitions.
func (w *world) waitOwned(d time.Duration) {
	w.t.Helper()
	w.env.WaitFor(d, "every partition is owned", func() bool {
		n := 0
		for _, m := range w.live() {
			n += len(m.Assigned())
		}
		return n == w.parts
	})
}

// waitRead waits until everything published was recorded.
func (w *world) waitRead(d time.Duration) time.Duration {
	w.t.Helper()
	w.recorded = true
	began := time.Now()
	defer func() {
		if w.t.Failed() {
			w.t.Log(w.describe())
		}
	}()
	w.env.WaitFor(d, "everything is read", func() bool { return w.ledger.Complete(w.next) })
	return time.Since(began)
}

func (w *world) describe() string {
	var out string
	for _, m := range w.live() {
		out += fmt.Sprintf("%s: %+v\n", m.name, m.Stats())
	}
	return out + w.describeProgress()
}
