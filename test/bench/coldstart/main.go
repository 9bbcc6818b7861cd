// Program coldstart measures B3 and B4 of test/bench/README.md: a group that starts from nothing, until every partition runs
// exactly once, as the handlers say. All connections are made before the clock starts.
//
// B3: all workers start at the same moment with the smallest windows; the settle delay is part of the time and is named beside
// it. B4: the default settings, workers that start spread over 2 s; a Start that fails is counted.
//
//	go run ./test/bench/coldstart
//	go run ./test/bench/coldstart -only b3 -workers 1000 -runs 3
//
// A thousand are not among the sizes that it takes by itself: on two cores they do not finish, see docs/ROBUSTNESS.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/bench/rig"
)

var (
	workersFlag    = flag.String("workers", "50,200,10,100", "B3: numbers of workers")
	partitionsFlag = flag.Int("partitions", 10_000, "number of partitions")
	settleFlag     = flag.Duration("settle", 50*time.Millisecond, "B3: settle delay")
	ownIDsFlag     = flag.Bool("own-ids", false, "give each worker an ID of its own, instead of a pooled one")
	spreadFlag     = flag.Duration("spread", 2*time.Second, "B4: time over which the workers start")
	lateFlag       = flag.Int("late-workers", 50, "B4: number of workers")
	onlyFlag       = flag.String("only", "", "b3 or b4; empty: both")
	runsFlag       = flag.Int("runs", 5, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	sizes, err := rig.ParseSizes(*workersFlag)
	if err != nil {
		return err
	}
	goals := map[int]time.Duration{50: 150 * time.Millisecond, 200: 500 * time.Millisecond}
	for _, n := range sizes {
		if *onlyFlag == "b4" {
			break
		}
		goal := ""
		if d, ok := goals[n]; ok {
			goal = fmt.Sprintf("≤ %v", *settleFlag+d)
		}
		title := fmt.Sprintf("B3: %d workers start at once, %d partitions, settle delay %v, own IDs: %v", n, *partitionsFlag, *settleFlag, *ownIDsFlag)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error {
			return start(r, n, 0, goal, rig.Prompt(*settleFlag)...)
		}); err != nil {
			return err
		}
	}
	if *onlyFlag == "b3" {
		return nil
	}
	title := fmt.Sprintf("B4: %d workers start over %v, %d partitions, default settings, own IDs: %v", *lateFlag, *spreadFlag, *partitionsFlag, *ownIDsFlag)
	return rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return start(r, *lateFlag, *spreadFlag, "≤ 4500") })
}

// start measures one start of n workers.
func start(r *rig.Run, n int, spread time.Duration, goal string, opts ...parti.Option) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: *partitionsFlag, Options: opts})
	if err != nil {
		return err
	}
	defer g.Close()
	ws := make([]*rig.Worker, n)
	for i := range ws {
		var own []parti.Option
		if *ownIDsFlag {
			own = append(own, parti.WithWorkerID(fmt.Sprintf("own-%d", i)))
		}
		if ws[i], err = g.Make(own...); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	errs := make([]error, n)
	began, used := time.Now(), rig.CPU()
	for i, w := range ws {
		all.Go(func() {
			time.Sleep(time.Duration(float64(spread) * float64(i) / float64(n)))
			errs[i] = w.Start()
		})
	}
	full, err := g.Ledger.WaitFull(rig.Limit)
	if err != nil {
		return errors.Join(err, g.PublishError())
	}
	used = rig.CPU() - used
	all.Wait()
	started := time.Now()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		if err := g.WaitBalanced(); err != nil {
			return err
		}
	}
	r.Time("until every partition runs", full.Sub(began), goal)
	r.Time("until then, processor time of the whole process", used, "")
	r.Time("until every Start has returned as well", started.Sub(began), "")
	r.Time("until all run an equal share", time.Since(began), "")
	r.Add("commits", float64(g.Commits()), "", "")
	r.Add("failed Starts", float64(failed), "", "0")
	r.Time("run twice, partition-ms", g.Ledger.Totals().Twice, "0")
	return nil
}
