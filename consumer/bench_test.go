package consumer

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
)

// BenchmarkReading reads a backlog of 64 partitions: by 64 ordered consumers of nats.go on 8 connections, and by 8 Readers that commit. One
// operation is one message; a round reads the whole backlog.
//
//	go test ./consumer -run '^$' -bench Reading -benchtime 500000x
func BenchmarkReading(b *testing.B) {
	const parts, readers = 64, 8
	for _, layout := range []Layout{SubjectPerPartition("ORDERS", "orders", parts), StreamPerPartition("ORDERS", "orders", parts)} {
		name := "one stream"
		if layout.perStream > 0 {
			name = "a stream each"
		}
		b.Run(name+"/raw", func(b *testing.B) { benchRaw(b, layout, readers) })
		b.Run(name+"/process", func(b *testing.B) { benchReader(b, layout, readers, true) })
		b.Run(name+"/fetch", func(b *testing.B) { benchReader(b, layout, readers, false) })
	}
}

// BenchmarkReadingMany reads 1,000 partitions: in 16 streams, and in one.
func BenchmarkReadingMany(b *testing.B) {
	const parts, readers = 1000, 8
	b.Run("16 streams/process", func(b *testing.B) { benchReader(b, SpreadOver("ORDERS", "orders", parts, 63), readers, true) })
	b.Run("one stream/process", func(b *testing.B) { benchReader(b, SubjectPerPartition("ORDERS", "orders", parts), readers, true) })
}

func fill(b *testing.B, env *natstest.Env, layout Layout) {
	js := connectTCP(b, env)
	ctx := context.Background()
	if err := layout.CreateStreams(ctx, js, jetstream.StreamConfig{}); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 200)
	for i := range b.N {
		if _, err := js.PublishAsync(layout.prefix+"."+strconv.Itoa(i%layout.partitions), data); err != nil {
			b.Fatal(err)
		}
		if i%2000 == 1999 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
}

// connectTCP connects as a program does, without a gate in between.
func connectTCP(b *testing.B, env *natstest.Env) jetstream.JetStream {
	nc, err := nats.Connect(env.Server.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	return js
}

// cpu returns the processor time that the process has used, server included.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportReading(b *testing.B, began time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(b.N), "cpu-ns/msg")
}

// counter ends a round when every message was seen.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) add(n int) {
	if c.left.Add(-int64(n)) == 0 {
		close(c.done)
	}
}

func benchRaw(b *testing.B, layout Layout, readers int) {
	env := natstest.Single(b, natstest.WithTCP())
	fill(b, env, layout)
	count := newCounter(b.N)
	ctx := context.Background()
	clients := make([]jetstream.JetStream, readers)
	for i := range clients {
		clients[i] = connectTCP(b, env)
	}
	began := cpu()
	b.ResetTimer()
	var all sync.WaitGroup
	running := make([]jetstream.ConsumeContext, layout.partitions)
	for p := range layout.partitions {
		all.Go(func() {
			stream, subject := layout.Resolve(p)
			c, err := clients[p%readers].OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
			if err == nil {
				running[p], err = c.Consume(func(jetstream.Msg) { count.add(1) })
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	<-count.done
	b.StopTimer()
	reportReading(b, began)
	for _, c := range running {
		c.Stop()
	}
}

func benchReader(b *testing.B, layout Layout, readers int, process bool) {
	env := natstest.Single(b, natstest.WithTCP())
	fill(b, env, layout)
	count := newCounter(b.N)
	ctx, cancel := context.WithCancel(context.Background())
	group := make([]*Reader, readers)
	for i := range group {
		r, err := NewReader(connectTCP(b, env), "bench", layout.partitions, WithLayout(layout),
			WithManagerOptions(parti.WithExpectedWorkers(readers)))
		if err != nil {
			b.Fatal(err)
		}
		r.Pause()
		group[i] = r
	}
	for _, r := range group {
		if err := r.Start(ctx); err != nil {
			b.Fatal(err)
		}
	}
	env.WaitFor(time.Minute, "all own their part", func() bool {
		n := 0
		for _, r := range group {
			n += len(r.Assigned())
		}
		return n == layout.partitions
	})
	began := cpu()
	b.ResetTimer()
	var all sync.WaitGroup
	for _, r := range group {
		r.Resume()
		all.Go(func() {
			if process {
				_ = r.Process(ctx, func(context.Context, Message) error { count.add(1); return nil })
				return
			}
			for {
				ms, err := r.Fetch(ctx, 500)
				if err != nil {
					return
				}
				count.add(len(ms))
				if err := r.Ack(ctx, ms...); err != nil {
					return
				}
			}
		})
	}
	<-count.done
	b.StopTimer()
	reportReading(b, began)
	cancel()
	all.Wait()
	for _, r := range group {
		if err := r.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}
}
