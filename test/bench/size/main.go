// Program size measures B14 of test/bench/README.md: groups at the limits of size, until every partition runs, and a server that
// takes only small messages, where the group must say by name that it cannot work, before anything is written.
//
//	go run ./test/bench/size
//	go run ./test/bench/size -sizes 1x1000000 -passive
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/bench/rig"
	"github.com/partigo/parti/types"
)

var (
	sizesFlag   = flag.String("sizes", "1x100000,10x500000,1000x100000", "workers x partitions, several separated by commas")
	passiveFlag = flag.Bool("passive", false, "no handlers: only wait until every worker has applied a commit that gives it its share")
	payloadFlag = flag.Int("max-payload", 128<<10, "largest message of the small server, in bytes; 0 leaves it out")
	smallFlag   = flag.Int("small", 100_000, "partitions of the one worker on the small server")
	runsFlag    = flag.Int("runs", 1, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	for size := range strings.SplitSeq(*sizesFlag, ",") {
		var workers, partitions int
		if _, err := fmt.Sscanf(size, "%dx%d", &workers, &partitions); err != nil {
			return fmt.Errorf("-sizes: %q is not like 10x500000: %w", size, err)
		}
		title := fmt.Sprintf("B14: %d worker(s), %d partitions, defaults but a settle delay of 1s, handlers: %v", workers, partitions, !*passiveFlag)
		if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return reach(r, workers, partitions) }); err != nil {
			return err
		}
	}
	if *payloadFlag == 0 {
		return nil
	}
	title := fmt.Sprintf("B14: 1 worker, %d partitions, a server that takes messages up to %d bytes", *smallFlag, *payloadFlag)
	return rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return refused(out, r) })
}

func reach(r *rig.Run, workers, partitions int) error {
	g, err := rig.NewGroup(rig.Setup{Partitions: partitions, Passive: *passiveFlag, Options: rig.Prompt(time.Second)})
	if err != nil {
		return err
	}
	defer g.Close()
	before := rig.MeasureMemory()
	began := time.Now()
	if _, err := g.Start(workers, 100); err != nil {
		return err
	}
	r.Time("until every Start has returned", time.Since(began), "")
	if *passiveFlag {
		err = rig.Wait(rig.Limit, "shares", func() bool { return g.Owned() == partitions })
	} else {
		_, err = g.Ledger.WaitFull(rig.Limit)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, g.PublishError())
	}
	r.Time("until every partition runs", time.Since(began), "works")
	if !*passiveFlag {
		if err := g.WaitBalanced(); err != nil {
			return err
		}
	}
	_, publishing, landed := g.LastCommit()
	r.Time("last commit: storing and committing", landed.Sub(publishing), "")
	r.Add("memory of the whole process", rig.MeasureMemory().Minus(before).Bytes/(1<<20), "MiB", "")
	return nil
}

// refused waits for the error of a group that is too large for its server.
func refused(out io.Writer, r *rig.Run) error {
	small := natstest.WithServerOptions(func(o *server.Options) { o.MaxPayload = int32(*payloadFlag) })
	g, err := rig.NewGroup(rig.Setup{Partitions: *smallFlag, Passive: true, Options: rig.Prompt(100 * time.Millisecond), Server: []natstest.Option{small}})
	if err != nil {
		return err
	}
	defer g.Close()
	seen := make(chan error, 1)
	w, err := g.Make(parti.WithHooks(parti.Hooks{OnError: func(err error) {
		select {
		case seen <- err:
		default:
		}
	}}))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.Start(); err != nil {
		return err
	}
	var cause error
	if err := rig.Wait(rig.Limit, "a named error", func() bool {
		select {
		case cause = <-seen:
			return true
		default:
			cause = g.PublishError()
			return cause != nil || g.Owned() > 0
		}
	}); err != nil {
		return err
	}
	r.Time("until it works or says why not", time.Since(began), "")
	if cause != nil {
		named := 0.0
		if errors.Is(cause, types.ErrPayloadTooLarge) {
			named = 1
		}
		r.Add("error is ErrPayloadTooLarge (1: yes)", named, "", "1")
		fmt.Fprintf(out, "  the error: %v\n", cause)
	}
	return nil
}
