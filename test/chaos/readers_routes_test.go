package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/checker/ledger"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// clusterGroup is a group of readers of this process over three servers, with replicated streams and offsets.
type clusterGroup struct {
	t *testing.T
	setup
	c       *natstest.Cluster
	js      jetstream.JetStream
	ledger  *ledger.Ledger
	began   time.Time
	readers []*clusterReader
	made    int

	stop      context.CancelFunc // of the producers
	producers sync.WaitGroup
	produced  []int
	lost      atomic.Int64
}

// clusterReader is a reader with a connection of its own.
type clusterReader struct {
	*consumer.Reader
	name   string
	client *natstest.Client
	killed atomic.Bool // its network is about to vanish
	dead   atomic.Bool // nothing that it does counts
	work   sync.WaitGroup
}

func newClusterGroup(t *testing.T, s setup) *clusterGroup {
	t.Helper()
	g := &clusterGroup{t: t, setup: s, ledger: ledger.New(s.Partitions), began: time.Now(), produced: make([]int, s.Partitions)}
	g.c = natstest.NewCluster(t, 3)
	g.js = g.connect("parent", 0).JS()
	g.c.Repeat(func(ctx context.Context) error {
		return g.layout().CreateStreams(ctx, g.js, jetstream.StreamConfig{Replicas: 3})
	})
	g.c.Repeat(func(ctx context.Context) error {
		return ledger.KeepOffsets(ctx, g.js, consumer.DefaultOffsetsBucket, 3, jetstream.FileStorage)
	})
	return g
}

// connect connects to a server first, and to the others when that one stops.
func (g *clusterGroup) connect(name string, first int) *natstest.Client {
	return g.c.Connect(name, first%3, (first+1)%3, (first+2)%3)
}

// produce publishes to every partition until stopped, through all servers.
func (g *clusterGroup) produce() {
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.t.Cleanup(func() { cancel(); g.producers.Wait() })
	var clients [3]jetstream.JetStream
	for i := range clients {
		clients[i] = g.connect(fmt.Sprintf("producer-%d", i), i).JS()
	}
	for p := range g.Partitions {
		g.producers.Go(func() {
			for tick := time.NewTicker(g.Pace); ctx.Err() == nil; {
				g.produced[p]++
				publish(clients[p%3], p, g.produced[p])
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
}

// join starts a reader; batch 0 is Process.
func (g *clusterGroup) join(batch int) {
	g.t.Helper()
	r := &clusterReader{name: fmt.Sprintf("r%d", g.made)}
	r.client = g.connect(r.name, g.made)
	g.made++
	opts := append(g.options(), consumer.WithOffsets(consumer.DefaultOffsetsBucket, 3, jetstream.FileStorage),
		consumer.WithManagerOptions(parti.WithReplicas(3), parti.WithStartTimeout(clusterPatience)), consumer.WithHooks(consumer.Hooks{OnLost: func(int, int64) { g.lost.Add(1) }}))
	var err error
	r.Reader, err = consumer.NewReader(r.client.JS(), readGroup, g.Partitions, opts...)
	require.NoError(g.t, err)
	g.readers = append(g.readers, r)
	r.work.Go(func() {
		if err := g.read(r, batch); err != nil && !errors.Is(err, consumer.ErrReaderClosed) && !r.killed.Load() { // perhaps while it started
			g.t.Errorf("%s: %v", r.name, err)
		}
	})
	g.t.Cleanup(func() { g.end(r) })
}

// read reads until the reader is closed.
func (g *clusterGroup) read(r *clusterReader, batch int) (err error) {
	ctx := context.Background()
	if batch == 0 {
		return r.Process(ctx, func(_ context.Context, m consumer.Message) error {
			g.handed(r, m)
			g.acknowledges(r, m)
			return nil
		})
	}
	for {
		ms, err := r.Fetch(ctx, batch)
		if err != nil {
			return err
		}
		last := map[int]consumer.Message{}
		for _, m := range ms {
			g.handed(r, m)
			last[m.Partition] = m
		}
		for _, m := range last {
			g.acknowledges(r, m)
		}
		var all sync.WaitGroup
		for _, m := range last {
			all.Go(func() {
				if result := resultOf(r.Ack(ctx, m)); !r.dead.Load() {
					g.ledger.Answer(placeOf(r, m), result)
				}
			})
		}
		all.Wait()
	}
}

func placeOf(r *clusterReader, m consumer.Message) ledger.Place {
	return ledger.Place{Reader: r.name, Partition: m.Partition, Epoch: m.Epoch, Sequence: m.Sequence}
}

func (g *clusterGroup) handed(r *clusterReader, m consumer.Message) {
	if n, _ := strconv.Atoi(string(m.Data)); !r.dead.Load() { // 0 is refused
		g.ledger.Deliver(placeOf(r, m), n)
	}
}

func (g *clusterGroup) acknowledges(r *clusterReader, m consumer.Message) {
	if !r.dead.Load() {
		g.ledger.Acknowledge(placeOf(r, m))
	}
}

// kill ends a reader as the end of its process would.
func (g *clusterGroup) kill(i int) {
	r := g.readers[i]
	g.readers = append(g.readers[:i:i], g.readers[i+1:]...)
	r.killed.Store(true)
	r.client.Kill()
	r.dead.Store(true) // what its goroutines still do does not count
}

// end closes a reader, and waits until all it has started is over.
func (g *clusterGroup) end(r *clusterReader) {
	limit := clusterPatience
	if r.dead.Load() {
		limit = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := r.Close(ctx); err != nil && !r.dead.Load() && !grouptest.Unsaid(err) {
		g.t.Errorf("%s: close: %v", r.name, err)
	}
	r.work.Wait()
}

// waitProgress waits until something new of every partition was handed out.
func (g *clusterGroup) waitProgress() time.Duration {
	g.t.Helper()
	began, from := time.Now(), g.ledger.Progress()
	g.c.WaitFor(clusterPatience, "every partition is read", func() bool {
		for p, n := range g.ledger.Progress() {
			if n <= from[p] {
				return false
			}
		}
		return true
	})
	return time.Since(began)
}

// Three servers whose routes are cut and healed at random, while messages come in and readers come and die.
func TestReadersOverCutRoutes(t *testing.T) {
	g := newClusterGroup(t, setup{Partitions: 12, PerStream: 4, TTL: 6 * time.Second, Pace: 20 * time.Millisecond})
	g.produce()
	for i := range 4 {
		g.join([]int{0, 30}[i%2])
	}
	t.Logf("ready after %v, every partition read after another %v", time.Since(g.began).Round(time.Millisecond), g.waitProgress().Round(time.Millisecond))
	cuts, died := 0, 0
	var longest time.Duration
	for end := time.Now().Add(*routes); cuts == 0 || time.Now().Before(end); cuts++ {
		server := rand.IntN(3)
		g.c.Isolate(server)
		<-time.After(rand.N(3 * time.Second))
		if rand.IntN(2) == 0 {
			g.kill(rand.IntN(len(g.readers)))
			died++
		}
		<-time.After(rand.N(3 * time.Second))
		g.c.Heal(server)
		if len(g.readers) < 4 {
			g.join([]int{0, 30}[rand.IntN(2)])
		}
		if rand.IntN(4) > 0 {
			longest = max(longest, g.waitProgress())
		}
	}
	g.stop()
	g.producers.Wait()
	g.c.WaitFor(clusterPatience, "everything is read", func() bool { return g.ledger.Complete(g.produced) })
	for _, r := range g.readers {
		g.end(r)
	}
	var streams []string
	for _, s := range g.layout().Streams(jetstream.StreamConfig{}) {
		streams = append(streams, s.Name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clusterPatience)
	defer cancel()
	records, err := ledger.Read(ctx, g.js, streams, consumer.DefaultOffsetsBucket, readGroup)
	require.NoError(t, err)
	report(t, g.ledger, records, g.began, "%d cuts, %d readers killed, all partitions read again within %v; %d leases lost",
		cuts, died, longest.Round(time.Millisecond), g.lost.Load())
}
