// Program memory measures B10 of test/bench/README.md: what a worker costs in memory and goroutines beyond its connection, what each
// partition costs that it owns or runs, and how long it takes to cancel all of them when the lease has run out.
//
// The server and the leader run in a process of their own, so that what is measured is the worker's alone. Memory is live heap and
// stacks after a collection.
//
//	go run ./test/bench/memory
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/test/bench/rig"
)

var (
	workersFlag    = flag.String("workers", "50,10,100,1000", "numbers of workers")
	partitionsFlag = flag.Int("partitions", 20, "partitions for each of them")
	manyFlag       = flag.Int("many", 100_000, "partitions of the one worker")
	timingsFlag    = flag.String("timings", "3s/15s/10s", "heartbeat interval/TTL/leader lease")
	fenceFlag      = flag.String("fence-timings", "1s/3s/3s,3s/15s/10s", "the same for fences")
	onlyFlag       = flag.String("only", "", "workers, owned, running or fence; empty: all")
	restFlag       = flag.Duration("rest", time.Second, "rest before each measurement")
	runsFlag       = flag.Int("runs", 3, "runs of each measurement")
)

func main() {
	serveIfAsked()
	rig.Main(run)
}

func run(out io.Writer) error {
	sizes, err := rig.ParseSizes(*workersFlag)
	if err != nil {
		return err
	}
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	fences, err := rig.ParseTimings(*fenceFlag)
	if err != nil {
		return err
	}
	measures := func(what string) bool { return *onlyFlag == "" || *onlyFlag == what }
	for _, n := range sizes {
		if !measures("workers") {
			break
		}
		title := fmt.Sprintf("B10: %d workers with %d partitions each, beyond their connections", n, *partitionsFlag)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return workers(r, n, timings[0]) }); err != nil {
			return err
		}
	}
	for _, handlers := range []bool{false, true} {
		what := "owned"
		if handlers {
			what = "running"
		}
		if !measures(what) {
			continue
		}
		title := fmt.Sprintf("B10: one worker with %d %s partitions", *manyFlag, what)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return partitions(r, timings[0], handlers) }); err != nil {
			return err
		}
	}
	for _, t := range fences {
		if !measures("fence") {
			break
		}
		title := fmt.Sprintf("B10: a worker that runs %d partitions is cut off, %v", *manyFlag, t)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return fence(r, t) }); err != nil {
			return err
		}
	}
	return nil
}

// group returns a group of workers in this process on a server in another one.
func group(n int, t rig.Timing, s rig.Setup) (*rig.Group, func(), error) {
	url, stop, err := startServer(n, t)
	if err != nil {
		return nil, nil, err
	}
	s.URL, s.Source = url, source.Static(rig.Partitions(1)...) // not asked: these workers never lead
	s.Options = append(append(t.Options(), parti.WithLabels(label)), s.Options...)
	g, err := rig.NewGroup(s)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return g, func() { g.Close(); stop() }, nil
}

func workers(r *rig.Run, n int, t rig.Timing) error {
	for _, handlers := range []bool{false, true} {
		g, end, err := group(n**partitionsFlag, t, rig.Setup{Passive: !handlers, Partitions: n * *partitionsFlag})
		if err != nil {
			return err
		}
		if err := cost(r, g, n, handlers); err != nil {
			end()
			return err
		}
		end()
	}
	return nil
}

func cost(r *rig.Run, g *rig.Group, n int, handlers bool) error {
	ws := make([]*rig.Worker, n)
	for i := range ws {
		var err error
		if ws[i], err = g.Make(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
		_, err = ws[i].Link.JS.AccountInfo(ctx) // makes what any request needs
		if cancel(); err != nil {
			return err
		}
	}
	before := rig.MeasureMemory()
	slots := make(chan struct{}, 100)
	var all sync.WaitGroup
	for _, w := range ws {
		slots <- struct{}{}
		all.Go(func() { _ = w.Start(); <-slots }) // who has not started owns nothing, which shows below
	}
	all.Wait()
	if err := rig.Wait(rig.Limit, "all partitions to run", func() bool { return g.Owned() == n**partitionsFlag }); err != nil {
		return err
	}
	time.Sleep(*restFlag)
	m := rig.MeasureMemory().Minus(before)
	if !handlers {
		r.Add("memory per worker", m.Bytes/1024/float64(n), "KiB", "≤ 64")
		r.Add("goroutines per worker", m.Goroutines/float64(n), "", "≤ 6")
		return nil
	}
	r.Add("memory per worker, a handler for each partition", m.Bytes/1024/float64(n), "KiB", "")
	r.Add("goroutines per worker, a handler for each partition", m.Goroutines/float64(n), "", "")
	return nil
}

// partitions measures one worker with many, without handlers (owned) or with (running).
func partitions(r *rig.Run, t rig.Timing, handlers bool) error {
	name, goal := "bytes per owned partition", "≤ 300"
	var opts []parti.Option
	if handlers {
		name, goal = "bytes per running partition", "≤ 4096"
		opts = append(opts, parti.WithHandler(func(ctx context.Context, _ parti.Ownership) error { <-ctx.Done(); return nil }))
	}
	g, end, err := group(*manyFlag, t, rig.Setup{Passive: true, Options: opts})
	if err != nil {
		return err
	}
	defer end()
	m, took, err := own(g)
	if err != nil {
		return err
	}
	r.Add(name, m.Bytes/float64(*manyFlag), "B", goal)
	r.Add(name+": goroutines", m.Goroutines/float64(*manyFlag), "", "")
	r.Time(name+": until all run", took, "")
	return nil
}

func own(g *rig.Group) (rig.Memory, time.Duration, error) {
	w, err := g.Make()
	if err != nil {
		return rig.Memory{}, 0, err
	}
	before, began := rig.MeasureMemory(), time.Now()
	if err := w.Start(); err != nil {
		return rig.Memory{}, 0, err
	}
	if err := rig.Wait(rig.Limit, "all partitions to run", func() bool { return g.Owned() == *manyFlag }); err != nil {
		return rig.Memory{}, 0, err
	}
	took := time.Since(began)
	time.Sleep(*restFlag)
	return rig.MeasureMemory().Minus(before), took, nil
}

// fenceTries is how often a worker may lose its lease before it is cut off.
const fenceTries = 10

// errLostBefore: there is nothing to measure.
var errLostBefore = errors.New("the worker has lost its lease by itself")

// fence cuts a worker off and measures its handlers' end.
func fence(r *rig.Run, t rig.Timing) (err error) {
	for range fenceTries {
		if err = fenceOnce(r, t); !errors.Is(err, errLostBefore) {
			return err
		}
	}
	return fmt.Errorf("%d times %w: %v is too short for so many partitions on so busy a machine", fenceTries, err, t)
}

func fenceOnce(r *rig.Run, t rig.Timing) error {
	var returned, first, last atomic.Int64 // handlers; when, in nanoseconds since the Unix epoch
	handler := func(ctx context.Context, _ parti.Ownership) error {
		<-ctx.Done()
		now := time.Now().UnixNano()
		first.CompareAndSwap(0, now)
		if returned.Add(1) == int64(*manyFlag) {
			last.Store(now)
		}
		return nil
	}
	g, end, err := group(*manyFlag, t, rig.Setup{Passive: true, Options: []parti.Option{parti.WithHandler(handler)}})
	if err != nil {
		return err
	}
	defer end()
	ws, err := g.Start(1, 0)
	if err != nil {
		return err
	}
	w := ws[0]
	if err := rig.Wait(rig.Limit, "all partitions to run", func() bool { return g.Owned() == *manyFlag }); err != nil {
		return err
	}
	time.Sleep(*restFlag + t.Interval)
	if returned.Load() > 0 {
		return errLostBefore
	}
	used := rig.CPU()
	w.Link.Cut()
	if err := rig.Wait(rig.Limit, "all handlers to return", func() bool { return last.Load() > 0 }); err != nil {
		return err
	}
	due := w.LastBeat().Add(t.TTL - t.TTL/8).UnixNano() // the lease
	r.Time("from the end of the lease until the first handler is told", time.Duration(first.Load()-due), "")
	r.Time("from the end of the lease until the last handler returns", time.Duration(last.Load()-due), fmt.Sprintf("≤ %v", t.TTL/16))
	r.Time("processor time used for it", rig.CPU()-used, "")
	return nil
}
