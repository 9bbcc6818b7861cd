// Program churn measures B11 and B12 of test/bench/README.md: every 2 s a worker joins, or one that is chosen at random (the
// leader included) is stopped (B11) or crashes (B12). Counted in the handlers: the time in which partitions ran twice, and that in
// which nobody ran them.
//
//	go run ./test/bench/churn
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/partigo/parti/test/bench/rig"
)

var (
	timingsFlag    = flag.String("timings", "0.3s/1s/1s", "heartbeat interval/TTL/leader lease, several separated by commas")
	workersFlag    = flag.Int("workers", 10, "number of workers")
	partitionsFlag = flag.Int("partitions", 1000, "number of partitions")
	everyFlag      = flag.Duration("every", 2*time.Second, "time between two changes")
	lengthFlag     = flag.Duration("length", time.Minute, "how long it goes on")
	settleFlag     = flag.Duration("settle", 50*time.Millisecond, "settle delay")
	runsFlag       = flag.Int("runs", 1, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	for _, t := range timings {
		for _, crash := range []bool{false, true} {
			row, what, goal := "B11", "stops", "≤ 0.1"
			if crash {
				row, what, goal = "B12", "crashes", "≤ 2.5"
			}
			title := fmt.Sprintf("%s: a worker %s or joins every %v for %v, %v, %d workers, %d partitions",
				row, what, *everyFlag, *lengthFlag, t, *workersFlag, *partitionsFlag)
			if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return churn(r, t, crash, goal) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func churn(r *rig.Run, t rig.Timing, crash bool, goal string) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: *partitionsFlag, Options: append(t.Options(), rig.Prompt(*settleFlag)...)})
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
	g.Ledger.Reset()
	began, changes := time.Now(), 0
	tick := time.NewTicker(*everyFlag)
	defer tick.Stop()
	for time.Since(began) < *lengthFlag-*everyFlag/2 {
		<-tick.C
		if err := change(g, changes%2 == 1, crash); err != nil {
			return err
		}
		changes++
	}
	totals, length := g.Ledger.Totals(), time.Since(began)
	whole := float64(length) * float64(*partitionsFlag)
	r.Time("run twice, partition-ms", totals.Twice, "0")
	r.Time("run by nobody, partition-ms", totals.None, "")
	r.Add("run by nobody", 100*float64(totals.None)/whole, "%", goal)
	r.Add("changes", float64(changes), "", "")
	r.Add("starts of handlers", float64(totals.Starts), "", "")
	return nil
}

func change(g *rig.Group, join, crash bool) error {
	if join {
		_, err := g.Start(1, 0)
		return err
	}
	live := g.Live()
	w := live[rand.IntN(len(live))]
	if crash {
		w.Kill()
		return nil
	}
	return w.Stop()
}
