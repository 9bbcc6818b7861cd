// Program fanout measures B13 of test/bench/README.md: one commit reaches all workers. Partitions are added to the source, one for one
// worker, or one for each, so that one worker's slice or all slices change, and nothing has to be released by anybody.
//
// The time is taken from when the leader begins to publish (it stores the changed slices first), and from when it knows that the
// commit has landed (which may be after others have applied it), until a worker has applied it. Bytes are those on the
// workers' connections, protocol and acknowledging heartbeats included, less what an idle group sends in the same time.
//
//	go run ./test/bench/fanout
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/partigo/parti/test/bench/rig"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
)

var (
	workersFlag    = flag.String("workers", "1000,10,100,1100", "numbers of workers")
	partitionsFlag = flag.Int("partitions", 10, "partitions for each worker at first")
	windowFlag     = flag.Duration("window", 2*time.Second, "how long bytes are counted")
	timingsFlag    = flag.String("timings", "3s/15s/10s", "heartbeat interval/TTL/leader lease, several separated by commas")
	runsFlag       = flag.Int("runs", 5, "commits of each kind")
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
			if err := fanout(out, n, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench is a group whose source grows.
type bench struct {
	*rig.Group
	source  *grouptest.Source
	workers int
	size    int
	idle    rig.Traffic // in one window
}

func fanout(out io.Writer, n int, t rig.Timing) error {
	b := &bench{workers: n, size: n * *partitionsFlag}
	b.source = grouptest.NewSource(rig.Partitions(b.size)...)
	most := b.size + *runsFlag*(n+1)
	// Each partition goes to the worker with its number, so every added one changes one slice and moves nothing.
	byNumber := types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
		owners := make([]int, len(in.Partitions))
		for i := range owners {
			owners[i] = i % len(in.Workers)
		}
		return owners, nil
	})
	var err error
	b.Group, err = rig.NewGroup(rig.Setup{
		Partitions: most, Source: b.source, Strategy: byNumber,
		Options: append(t.Options(), rig.Prompt(500*time.Millisecond)...),
	})
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.Start(n, 100); err != nil {
		return err
	}
	if err := rig.Wait(rig.Limit, "all partitions to run", func() bool { return b.Ledger.Idle() == most-b.size }); err != nil {
		return err
	}
	time.Sleep(2 * *windowFlag)
	for _, all := range []bool{false, true} {
		what, goal := "one slice changes", "≤ 60"
		if all {
			what, goal = "all slices change", "≤ 400"
		}
		if n > 1000 {
			goal = "works"
		}
		title := fmt.Sprintf("B13: one commit to %d workers, %s, %d partitions at first, %v", n, what, n**partitionsFlag, t)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return b.commit(r, all, goal) }); err != nil {
			return err
		}
	}
	return nil
}

// commit adds partitions and measures the commit that follows.
func (b *bench) commit(r *rig.Run, all bool, goal string) error {
	b.idle = b.window(func() {})
	before := b.Commits()
	if b.size++; all {
		b.size += b.workers - 1
	}
	var err error
	var version int64
	var began, landed time.Time
	traffic := b.window(func() {
		b.source.Set(rig.Partitions(b.size)...)
		if err = rig.Wait(rig.Limit, "a commit", func() bool { return b.Commits() > before }); err == nil {
			version, began, landed = b.LastCommit()
			err = b.WaitApplied(version)
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, b.PublishError())
	}
	var sinceBegan, sinceLanded []time.Duration
	for _, w := range b.Live() {
		_, at := w.Applied()
		sinceBegan, sinceLanded = append(sinceBegan, at.Sub(began)), append(sinceLanded, at.Sub(landed))
	}
	traffic = traffic.Minus(b.idle)
	r.Time("leader: storing and committing", landed.Sub(began), "")
	r.Quantiles("applied, since the leader began to publish:", sinceBegan, goal)
	r.Quantiles("applied, since the leader knew it had landed:", sinceLanded, "")
	r.Add("bytes into the server", traffic.InBytes/1024, "KiB", "")
	r.Add("bytes out of the server", traffic.OutBytes/1024, "KiB", "")
	r.Add("bytes out of the server, per worker", traffic.OutBytes/float64(b.workers), "B", "linear")
	r.Add("messages out of the server, per worker", traffic.OutMessages/float64(b.workers), "", "")
	return nil
}

// window returns the traffic of all workers during one window, at the beginning of which f is called.
func (b *bench) window(f func()) rig.Traffic {
	before, _ := b.Traffic()
	began := time.Now()
	f()
	time.Sleep(*windowFlag - time.Since(began))
	after, _ := b.Traffic()
	return after.Minus(before)
}
