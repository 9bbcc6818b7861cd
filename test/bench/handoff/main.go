// Program handoff measures B8 of test/bench/README.md: workers join one after the other, and partitions move to them from live workers.
// The gap of each partition, from the return of the old handler to the start of the new one, is taken in the handlers.
//
// It does so with handlers that return at once, and with 1 % of them taking 10 s: they must not delay the others. The next worker joins
// when those others run, while the slow ones of the joins before are still returning. So neither the gap of the others nor the
// time from a join until they run may differ from that without slow handlers.
//
//	go run ./test/bench/handoff
package main

import (
	"flag"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/test/bench/rig"
)

var (
	timingsFlag    = flag.String("timings", "1s/3s/3s,3s/15s/10s", "heartbeat interval/TTL/leader lease, several separated by commas")
	workersFlag    = flag.Int("workers", 10, "number of workers before one joins")
	partitionsFlag = flag.Int("partitions", 2000, "number of partitions")
	slowFlag       = flag.Duration("slow", 10*time.Second, "how long 1 % of the handlers take to return")
	joinsFlag      = flag.Int("joins", 5, "joins in a run")
	runsFlag       = flag.Int("runs", 3, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	for _, t := range timings {
		for _, slow := range []time.Duration{0, *slowFlag} {
			handlers := "handlers return at once"
			if slow > 0 {
				handlers = fmt.Sprintf("1 %% of the handlers take %v", slow)
			}
			title := fmt.Sprintf("B8: %d workers join %d, one by one, %d partitions, %v, %s", *joinsFlag, *workersFlag, *partitionsFlag, t, handlers)
			if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return joins(r, t, slow) }); err != nil {
				return err
			}
		}
	}
	return nil
}

const oneIn = 100 // partitions whose handler is slow

func joins(r *rig.Run, t rig.Timing, slow time.Duration) error {
	var moving atomic.Bool
	isSlow := func(partition int) bool { return slow > 0 && partition%oneIn == 0 }
	g, err := rig.NewGroup(rig.Setup{
		Partitions: *partitionsFlag, Options: append(t.Options(), rig.Prompt(50*time.Millisecond)...),
		Drain: func(partition int) time.Duration {
			if moving.Load() && isSlow(partition) {
				return slow
			}
			return 0
		},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	if _, err := g.Start(*workersFlag, 0); err != nil {
		return err
	}
	if err := g.WaitBalanced(); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond)
	g.Ledger.Reset()
	moving.Store(true)
	var until []time.Duration
	for range *joinsFlag {
		began := time.Now()
		if _, err := g.Start(1, 0); err != nil {
			return err
		}
		if err := g.WaitShared(func(partition int) bool { return !isSlow(partition) }); err != nil {
			return err
		}
		until = append(until, time.Since(began))
	}
	r.Quantiles("from a Start until all partitions with quick handlers run where they belong", until, "")
	if err := g.WaitBalanced(); err != nil {
		return err
	}
	moving.Store(false)
	var quick, late []time.Duration
	for _, gap := range g.Ledger.Gaps() {
		if isSlow(gap.Partition) {
			late = append(late, gap.Length)
		} else {
			quick = append(quick, gap.Length)
		}
	}
	r.Time("run twice, partition-ms", g.Ledger.Totals().Twice, "0")
	r.Add("partitions moved", float64(len(quick)+len(late)), "", "")
	r.Quantiles("gap", quick, "≤ 50")
	r.Quantiles("gap of those whose handler was slow, after its return", late, "")
	return nil
}
