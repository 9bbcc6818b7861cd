package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/test/bench/rig"
)

// connect makes the readers' connections.
func (b *backlog) connect() (links []*rig.Link, end func(), err error) {
	end = func() {
		for _, l := range links {
			l.Close()
		}
	}
	for range *readersFlag {
		l, err := rig.Connect(b.server.URL(), "reader")
		if err != nil {
			end()
			return nil, nil, err
		}
		links = append(links, l)
	}
	return links, end, nil
}

// subject is a partition's, by the connection that reads it.
type subject struct {
	link   int
	stream string
	name   string
}

// readEach reads by an ordered consumer for each partition.
func readEach(ctx context.Context, b *backlog) (spent, error) {
	var filters [][]subject
	for p := range b.layout.Partitions() {
		stream, name := b.layout.Resolve(p)
		filters = append(filters, []subject{{p % *readersFlag, stream, name}})
	}
	return b.readOrdered(ctx, filters)
}

// readFiltered reads by one ordered consumer for each connection and stream, with the filters of all its partitions there.
func readFiltered(ctx context.Context, b *backlog) (spent, error) {
	type at struct {
		link   int
		stream string
	}
	var filters [][]subject
	index := map[at]int{}
	for p := range b.layout.Partitions() {
		stream, name := b.layout.Resolve(p)
		where := at{p % *readersFlag, stream}
		i, known := index[where]
		if !known {
			i = len(filters)
			index[where] = i
			filters = append(filters, nil)
		}
		filters[i] = append(filters[i], subject{where.link, stream, name})
	}
	return b.readOrdered(ctx, filters)
}

// readOrdered makes an ordered consumer for each list of subjects, and then lets all of them read.
func (b *backlog) readOrdered(ctx context.Context, filters [][]subject) (spent, error) {
	links, end, err := b.connect()
	if err != nil {
		return spent{}, err
	}
	defer end()
	consumers := make([]jetstream.Consumer, len(filters))
	errs := make([]error, len(filters))
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i, list := range filters {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			cfg := jetstream.OrderedConsumerConfig{}
			for _, s := range list {
				cfg.FilterSubjects = append(cfg.FilterSubjects, s.name)
			}
			consumers[i], errs[i] = links[list[0].link].JS.OrderedConsumer(ctx, list[0].stream, cfg)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return spent{}, err
	}
	watch := start()
	for _, c := range consumers {
		running, err := c.Consume(func(m jetstream.Msg) { b.seen(m.Data()) })
		if err != nil {
			return spent{}, err
		}
		defer running.Stop()
	}
	err = b.wait(ctx)
	return watch.stop(), err
}

// readProcess reads by Readers, with a handler.
func readProcess(ctx context.Context, b *backlog) (spent, error) {
	return b.readGroup(ctx, func(ctx context.Context, r *consumer.Reader) error {
		return r.Process(ctx, func(_ context.Context, m consumer.Message) error { b.seen(m.Data); return nil })
	})
}

// readFetch reads by Readers in batches, each of which waits for its offsets to be stored.
func readFetch(ctx context.Context, b *backlog) (spent, error) {
	return b.readGroup(ctx, func(ctx context.Context, r *consumer.Reader) error {
		for {
			ms, err := r.Fetch(ctx, 500)
			if err != nil {
				return err
			}
			for _, m := range ms {
				b.seen(m.Data)
			}
			if err := r.Ack(ctx, ms...); err != nil {
				return err
			}
		}
	})
}

// readGroup makes a new group, waits until its readers own everything, and lets them read.
func (b *backlog) readGroup(ctx context.Context, read func(context.Context, *consumer.Reader) error) (spent, error) {
	links, end, err := b.connect()
	if err != nil {
		return spent{}, err
	}
	defer end()
	b.groups++
	name := "bench-" + strconv.Itoa(b.groups)
	readers := make([]*consumer.Reader, len(links))
	for i, l := range links {
		readers[i], err = consumer.NewReader(l.JS, name, b.layout.Partitions(), consumer.WithLayout(b.layout),
			consumer.WithSharedAbove(*sharedFlag), consumer.WithCommit(*delayFlag, 100),
			consumer.WithManagerOptions(parti.WithExpectedWorkers(len(links))), consumer.WithMetrics(&b.writes))
		if err != nil {
			return spent{}, err
		}
		readers[i].Pause() // what is owned is prepared for, and not read
	}
	errs := make([]error, len(readers))
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		for _, r := range readers {
			all.Go(func() { _ = r.Close(context.Background()) })
		}
		all.Wait()
	}()
	for i, r := range readers {
		all.Go(func() { errs[i] = r.Start(ctx) })
	}
	all.Wait()
	if err := errors.Join(append(errs, b.waitOwned(ctx, readers))...); err != nil {
		return spent{}, err
	}
	b.writes.n.Store(0)
	watch := start()
	for i, r := range readers {
		all.Go(func() { errs[i] = read(ctx, r) })
		r.Resume()
	}
	err = b.wait(ctx)
	took := watch.stop()
	took.writes = b.writes.n.Load()
	cancel()
	all.Wait()
	for _, e := range errs {
		if !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return took, err
}

// waitOwned waits until the readers own everything, and the server has all their consumers.
func (b *backlog) waitOwned(ctx context.Context, readers []*consumer.Reader) error {
	err := rig.Wait(rig.Limit, "the readers to own everything", func() bool {
		n := 0
		for _, r := range readers {
			n += len(r.Assigned())
		}
		return n == b.layout.Partitions()
	})
	if err != nil {
		return err
	}
	streams := b.layout.Streams(jetstream.StreamConfig{})
	want := b.layout.Partitions()
	if len(streams) == 1 && want > *sharedFlag {
		want = len(readers)
	}
	return rig.Wait(rig.Limit, fmt.Sprintf("%d consumers", want), func() bool {
		n := 0
		for _, s := range streams {
			if stream, err := b.producer.JS.Stream(ctx, s.Name); err == nil {
				n += stream.CachedInfo().State.Consumers
			}
		}
		return n >= want
	})
}
