// Program crash measures B5 and B6 of test/bench/README.md: a follower, or the leader, loses its connection for good and its
// handlers are gone, as with kill -9. The time until all its partitions run elsewhere is taken in the handlers.
//
// A crash happens at a random moment between two heartbeats, so the time after the crash varies by one interval. The time after
// the last heartbeat that the server took is given beside it.
//
//	go run ./test/bench/crash
//	go run ./test/bench/crash -timings 3s/15s/10s -runs 5      # the defaults
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
	timingsFlag    = flag.String("timings", "1s/3s/3s,0.3s/1s/1s", "heartbeat interval/TTL/leader lease, several separated by commas")
	workersFlag    = flag.Int("workers", 10, "number of workers")
	partitionsFlag = flag.Int("partitions", 1000, "number of partitions")
	runsFlag       = flag.Int("runs", 10, "crashes of each kind")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	for _, t := range timings {
		for _, leading := range []bool{false, true} {
			title, goal := "B5: a follower crashes", t.TTL+500*time.Millisecond
			if leading {
				title, goal = "B6: the leader crashes", max(t.Lease, t.TTL)+800*time.Millisecond
			}
			title = fmt.Sprintf("%s, %v, %d workers, %d partitions", title, t, *workersFlag, *partitionsFlag)
			if err := crashes(out, title, t, leading, goal); err != nil {
				return err
			}
		}
	}
	return nil
}

// crashes measures all crashes of one kind, in one group whose dead are replaced.
func crashes(out io.Writer, title string, t rig.Timing, leading bool, goal time.Duration) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: *partitionsFlag, Options: append(t.Options(), rig.Prompt(50*time.Millisecond)...)})
	if err != nil {
		return err
	}
	defer g.Close()
	if _, err := g.Start(*workersFlag-1, 0); err != nil {
		return err
	}
	return rig.Measure(out, title, *runsFlag, func(r *rig.Run) error {
		if _, err := g.Start(1, 0); err != nil {
			return err
		}
		if err := g.WaitBalanced(); err != nil {
			return err
		}
		time.Sleep(t.Interval + rand.N(t.Interval)) // past the heartbeat that acknowledges, at any moment before the next one
		w, err := g.Pick(leading)
		if err != nil {
			return err
		}
		g.Ledger.Reset()
		at := w.Kill()
		full, err := g.Ledger.WaitFull(rig.Limit)
		if err != nil {
			return err
		}
		r.Time("after the crash", full.Sub(at), fmt.Sprintf("≤ %v", goal))
		r.Time("after the last heartbeat", full.Sub(w.LastBeat()), "")
		r.Time("beyond the TTL since the last heartbeat", full.Sub(w.LastBeat())-t.TTL, "")
		r.Time("run twice, partition-ms", g.Ledger.Totals().Twice, "0")
		return nil
	})
}
