// Program elastic measures B16 of test/bench/README.md: a group of readers under load becomes larger by one, smaller by one, and loses
// one by a crash. The longest silence of a key, between two of its messages, what was handled twice and what came out of order are
// taken in the handlers.
//
// Each key is a partition, and is published to at a steady pace; so silence contains the time between two messages. The silence of
// the same group at rest is given beside it: what the machine and the producer contribute. So is the delay, from just before a
// message was published to its handler.
//
//	go run ./test/bench/elastic
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/test/bench/rig"
)

var (
	onlyFlag    = flag.String("only", "", "measure the rows whose title contains this")
	timingsFlag = flag.String("timings", "1s/3s/3s", "heartbeat interval/TTL/leader lease, several separated by commas")
	readersFlag = flag.Int("readers", 8, "number of readers before one joins")
	keysFlag    = flag.Int("keys", 64, "number of keys, and of partitions")
	paceFlag    = flag.Int("pace", 50, "messages per second and key")
	restFlag    = flag.Duration("rest", 2*time.Second, "how long the load goes on before and after each change")
	runsFlag    = flag.Int("runs", 5, "runs of each measurement")
)

func main() { rig.Main(run) }

func run(out io.Writer) error {
	timings, err := rig.ParseTimings(*timingsFlag)
	if err != nil {
		return err
	}
	layouts := []struct {
		name string
		consumer.Layout
	}{
		{"one stream", consumer.SubjectPerPartition("BENCH", "bench", *keysFlag)},
		{"one stream, read together", consumer.SubjectPerPartition("BENCH", "bench", *keysFlag)},
	}
	for _, t := range timings {
		for i, l := range layouts {
			var opts []consumer.Option
			if i == 1 {
				opts = append(opts, consumer.WithSharedAbove(0))
			}
			title := fmt.Sprintf("B16: %d → %d → %d readers, then a crash, %d keys × %d messages/s, %s, %v",
				*readersFlag, *readersFlag+1, *readersFlag, *keysFlag, *paceFlag, l.name, t)
			if !strings.Contains(title, *onlyFlag) {
				continue
			}
			if err := rig.Measure(out, title, *runsFlag, func(r *rig.Run) error { return elastic(r, l.Layout, t, opts) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// elastic plays one run: rest, join, leave, crash.
func elastic(r *rig.Run, layout consumer.Layout, t rig.Timing, opts []consumer.Option) error {
	g, err := newGroup(layout, t, opts)
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.join(*readersFlag); err != nil {
		return err
	}
	if err := g.waitShared(); err != nil {
		return err
	}
	load := g.produce()
	defer load.stop()
	time.Sleep(*restFlag)

	err = errors.Join(
		g.phase(r, atRest, "", func() error { time.Sleep(*restFlag); return nil }),
		g.phase(r, "join", "≤ 100", func() error { return g.join(1) }),
		g.phase(r, "leave", "≤ 100", g.leave),
		g.phase(r, "crash", fmt.Sprintf("≤ %d", (t.TTL+600*time.Millisecond).Milliseconds()), g.crash),
	)
	if err = errors.Join(err, load.stop()); err != nil {
		return err
	}
	if err := g.ledger.waitRead(load.published()); err != nil {
		return err
	}
	faults := g.ledger.faults()
	r.Add("out of order or missing", float64(len(faults)), "", "0")
	for _, f := range faults[:min(len(faults), 10)] {
		fmt.Println("  FAULT", f)
	}
	r.Add("handled", float64(g.ledger.handled()), "", "")
	return nil
}

const atRest = "at rest"

// phase makes a change under load and reports the silence from its beginning to a while after everybody has their part again.
func (g *group) phase(r *rig.Run, name, goal string, change func() error) error {
	g.ledger.reset()
	if err := change(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := g.waitShared(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	time.Sleep(*restFlag)
	s := g.ledger.look()
	r.Time(name+": longest silence of a key", s.silence, goal)
	switch name {
	case atRest:
		g.rest = s.silence
	case "join", "leave":
		r.Time(name+": of it, longer than at rest", max(0, s.silence-g.rest), "")
	}
	r.Time(name+": longest delay of a message", s.delay, "")
	r.Add(name+": handled twice", float64(s.repeats), "", "")
	r.Add(name+": of these, known to be committed", float64(s.committed), "", "0")
	return nil
}
