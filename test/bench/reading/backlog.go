package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/bench/rig"
)

// backlog is a server with full streams, and the check of one reading of them.
type backlog struct {
	layout   consumer.Layout
	messages int
	each     uint64 // messages of a partition
	server   *natstest.Server
	producer *rig.Link
	groups   int // made so far
	writes   writes

	cells []cell
	left  atomic.Int64  // partitions that are not read yet
	done  chan struct{} // closed when all are
	fault atomic.Pointer[string]
}

// cell is what was read of one partition. Its messages are reported one at a time, by whoever reads it. It fills a cache line.
type cell struct {
	next uint64
	_    [7]uint64
}

func newBacklog(layout consumer.Layout) (*backlog, error) {
	each := max(*messagesFlag/layout.Partitions(), 1)
	b := &backlog{layout: layout, each: uint64(each), messages: each * layout.Partitions(), cells: make([]cell, layout.Partitions())}
	var err error
	if b.server, err = natstest.NewServer(natstest.WithTCP()); err != nil {
		return nil, err
	}
	if b.producer, err = rig.Connect(b.server.URL(), "producer"); err == nil {
		err = b.fill()
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *backlog) close() {
	if b.producer != nil {
		b.producer.Close()
	}
	b.server.Close()
}

// fill publishes to all partitions in turns, so that in the streams they are as interleaved as can be.
func (b *backlog) fill() error {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
	defer cancel()
	js := b.producer.JS
	if err := b.layout.CreateStreams(ctx, js, jetstream.StreamConfig{MaxConsumers: 4000}); err != nil {
		return err
	}
	for n := range b.each {
		for p := range b.layout.Partitions() {
			data := make([]byte, max(*sizeFlag, 16))
			binary.LittleEndian.PutUint64(data, uint64(p))
			binary.LittleEndian.PutUint64(data[8:], n)
			if _, err := js.PublishAsync("bench."+strconv.Itoa(p), data); err != nil {
				return err
			}
		}
		if js.PublishAsyncPending() > 2000 {
			<-js.PublishAsyncComplete()
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the streams do not fill: %w", ctx.Err())
	}
}

// begin begins another reading.
func (b *backlog) begin() {
	clear(b.cells)
	b.left.Store(int64(len(b.cells)))
	b.done = make(chan struct{})
	b.fault.Store(nil)
}

// seen takes note of a message. It may be called at the same time for different partitions only.
func (b *backlog) seen(data []byte) {
	p, n := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	c := &b.cells[p]
	if n != c.next {
		s := fmt.Sprintf("partition %d: message %d came in place of %d", p, n, c.next)
		b.fault.CompareAndSwap(nil, &s)
	}
	if c.next++; c.next == b.each && b.left.Add(-1) == 0 {
		close(b.done)
	}
}

// wait waits until everything was read.
func (b *backlog) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d partitions are not read: %w", b.left.Load(), ctx.Err())
	}
}

// verdict says what was wrong with the last reading.
func (b *backlog) verdict() error {
	if s := b.fault.Load(); s != nil {
		return fmt.Errorf("out of order: %s", *s)
	}
	return nil
}

// writes counts the offsets that Readers have stored.
type writes struct {
	consumer.NopMetrics
	n atomic.Int64
}

// Committed counts.
func (w *writes) Committed(_ int, _ time.Duration, err error) {
	if err == nil {
		w.n.Add(1)
	}
}

// stopwatch measures from when it is made.
type stopwatch struct {
	wall time.Time
	cpu  time.Duration
}

func start() stopwatch { return stopwatch{time.Now(), rig.CPU()} }

func (s stopwatch) stop() spent { return spent{wall: time.Since(s.wall), cpu: rig.CPU() - s.cpu} }
