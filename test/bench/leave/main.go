// Program leave measures B7 of test/bench/README.md: a follower, or the leader, is stopped in good order. The time from the call of
// Stop until all its partitions run elsewhere is taken in the handlers, which return at once.
//
//	go run ./test/bench/leave
package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/partigo/parti/test/bench/rig"
)

var (
	timingsFlag    = flag.String("timings", "1s/3s/3s", "heartbeat interval/TTL/leader lease, several separated by commas")
	workersFlag    = flag.Int("workers", 10, "number of workers")
	partitionsFlag = flag.Int("partitions", 1000, "number of partitions")
	stopsFlag      = flag.Int("stops", 50, "stops of each kind in a run")
	runsFlag       = flag.Int("runs", 1, "runs; each gives one p50 and one p99")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	for _, t := range timings {
		for _, leading := range []bool{false, true} {
			who, goal := "a follower", "≤ 50"
			if leading {
				who, goal = "the leader", "≤ 100"
			}
			title := fmt.Sprintf("B7: %s stops, %d times a run, %v, %d workers, %d partitions", who, *stopsFlag, t, *workersFlag, *partitionsFlag)
			if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return stops(r, t, leading, goal) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func stops(r *rig.Run, t rig.Timing, leading bool, goal string) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: *partitionsFlag, Options: append(t.Options(), rig.Prompt(50*time.Millisecond)...)})
	if err != nil {
		return err
	}
	defer g.Close()
	if _, err := g.Start(*workersFlag-1, 0); err != nil {
		return err
	}
	g.Ledger.Reset()
	var elsewhere, returned, used []time.Duration
	for range *stopsFlag {
		if _, err := g.Start(1, 0); err != nil {
			return err
		}
		if err := g.WaitBalanced(); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // what the join has caused is over
		w, err := g.Pick(leading)
		if err != nil {
			return err
		}
		began, cpu := time.Now(), rig.CPU()
		if err := w.Stop(); err != nil {
			return err
		}
		returned = append(returned, time.Since(began))
		full, err := g.Ledger.WaitFull(rig.Limit)
		if err != nil {
			return err
		}
		elsewhere, used = append(elsewhere, full.Sub(began)), append(used, rig.CPU()-cpu)
	}
	r.Quantiles("until its partitions run elsewhere", elsewhere, goal)
	r.Quantiles("processor time of the whole process until then", used, "")
	r.Quantiles("until Stop has returned", returned, "")
	r.Time("run twice, partition-ms", g.Ledger.Totals().Twice, "0")
	return nil
}
