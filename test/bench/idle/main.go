// Program idle measures B9 of test/bench/README.md: a group in which nothing changes. It counts the messages of the workers'
// connections into the server and out of it, the leader's apart, and the processor time of the whole process, server
// included. The same number of connections without workers is given beside it.
//
//	go run ./test/bench/idle
package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/partigo/parti/test/bench/rig"
)

var (
	workersFlag    = flag.String("workers", "50,10,100,1000", "numbers of workers")
	partitionsFlag = flag.Int("partitions", 20, "partitions for each worker")
	timingsFlag    = flag.String("timings", "2s/6s/5s", "heartbeat interval/TTL/leader lease, several separated by commas")
	lengthFlag     = flag.Duration("length", 20*time.Second, "how long a run measures")
	restFlag       = flag.Duration("rest", 5*time.Second, "how long the group rests before")
	runsFlag       = flag.Int("runs", 3, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	sizes, err := rig.ParseSizes(*workersFlag)
	if err != nil {
		return err
	}
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	for _, t := range timings {
		for _, n := range sizes {
			if err := idle(out, n, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func idle(out io.Writer, n int, t rig.Timing) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: n * *partitionsFlag, Options: append(t.Options(), rig.Prompt(200*time.Millisecond)...)})
	if err != nil {
		return err
	}
	defer g.Close()
	began, before := time.Now(), rig.CPU()
	time.Sleep(min(*restFlag, 3*time.Second))
	empty := share(rig.CPU()-before, time.Since(began)) // nothing but the server
	if _, err := g.Start(n, 100); err != nil {
		return err
	}
	if err := g.WaitBalanced(); err != nil {
		return err
	}
	time.Sleep(*restFlag)
	goalIn, goalOut, goalCPU := "≤ 0.8", "≤ 2", ""
	if n == 50 {
		goalCPU = "≤ 0.03"
	}
	title := fmt.Sprintf("B9: %d idle workers, %d partitions each, %v, measured over %v", n, *partitionsFlag, t, *lengthFlag)
	return rig.Measure(out, title, *runsFlag, func(r *rig.Run) error {
		leader, err := g.Leader()
		if err != nil {
			return err
		}
		commits := g.Commits()
		all, leading := g.Traffic()
		began, before := time.Now(), rig.CPU()
		time.Sleep(*lengthFlag)
		used, took := rig.CPU()-before, time.Since(began)
		allAfter, leadingAfter := g.Traffic()
		now, err := g.Leader()
		if err != nil {
			return err
		}
		all, leading = allAfter.Minus(all), leadingAfter.Minus(leading)
		per := 1 / took.Seconds() / float64(n)
		r.Add("messages per second and worker into the server", all.InMessages*per, "1/s", goalIn)
		r.Add("messages per second and worker out of the server", all.OutMessages*per, "1/s", goalOut)
		r.Add("bytes per second and worker into the server", all.InBytes*per, "B/s", "")
		r.Add("bytes per second and worker out of the server", all.OutBytes*per, "B/s", "")
		if now == leader { // otherwise the machine was so busy that its lease ran out
			r.Add("messages per second of the leader into the server", leading.InMessages/took.Seconds(), "1/s", "")
			r.Add("messages per second of the leader out of the server", leading.OutMessages/took.Seconds(), "1/s", "")
		}
		r.Add("processor, whole process", share(used, took), "cores", goalCPU)
		r.Add("processor, server without workers", empty, "cores", "")
		r.Add("commits", float64(g.Commits()-commits), "", "0")
		return nil
	})
}

func share(used, took time.Duration) float64 { return used.Seconds() / took.Seconds() }
