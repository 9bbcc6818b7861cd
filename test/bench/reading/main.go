// Program reading measures B15 and B15b of test/bench/README.md: a backlog is read in order by partition, by consumer.Readers that store
// their offsets, and by the bare mechanism, ordered consumers of nats.go that store nothing. Both are measured in every run, in
// turns, over the same streams on the same server.
//
// Every message carries its partition and a number, and each way of reading is checked: nothing missing, nothing twice, in order.
// Consumers are made, and partitions owned, before the clock starts.
//
//	go run ./test/bench/reading
//	go run ./test/bench/reading -only 64
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/test/bench/rig"
)

var (
	onlyFlag     = flag.String("only", "", "measure the rows whose title contains this")
	waysFlag     = flag.String("ways", "", "read only in the ways whose name contains this; nothing is compared then")
	messagesFlag = flag.Int("messages", 400_000, "number of messages in the backlog")
	sizeFlag     = flag.Int("size", 200, "bytes in a message")
	fewFlag      = flag.Int("partitions", 64, "number of partitions in B15")
	manyFlag     = flag.Int("many", 1000, "number of partitions in B15b")
	streamsFlag  = flag.Int("streams", 16, "number of streams that those are spread over")
	readersFlag  = flag.Int("readers", 8, "number of readers, each with a connection")
	sharedFlag   = flag.Int("shared", consumer.MaxPerStream, "partitions in a stream above which a Reader reads them by one consumer")
	delayFlag    = flag.Duration("delay", 100*time.Millisecond, "how long an acknowledgement may stay unstored, see consumer.WithCommit")
	runsFlag     = flag.Int("runs", 5, "runs of each measurement")
)

func main() { rig.Main(run) }

// row is one layout, and the ways in which it is read. The first one is what the others are compared with.
type row struct {
	title  string
	layout consumer.Layout
	ways   []way
}

// way is one way of reading everything.
type way struct {
	name string
	goal string // of its rate, as a part of the first way's
	read func(ctx context.Context, b *backlog) (spent, error)
}

// spent is what it took.
type spent struct {
	wall, cpu time.Duration
	writes    int64 // of offsets
}

func run(out io.Writer) error {
	few, many := *fewFlag, *manyFlag
	perStream := (many + *streamsFlag - 1) / *streamsFlag
	each := way{name: "ordered consumer per partition", read: readEach}
	filters := way{name: "multi-filter ordered consumer per reader", read: readFiltered}
	process := way{"Reader.Process", "≥ 0.85", readProcess}
	fetch := way{"Reader.Fetch, Ack", "", readFetch}
	for _, r := range []row{
		{fmt.Sprintf("B15: %d partitions in one stream", few), consumer.SubjectPerPartition("BENCH", "bench", few), []way{each, filters, process, fetch}},
		{fmt.Sprintf("B15, a stream each: %d partitions", few), consumer.StreamPerPartition("BENCH", "bench", few), []way{each, process, fetch}},
		{fmt.Sprintf("B15b: %d partitions over %d streams", many, *streamsFlag), consumer.SpreadOver("BENCH", "bench", many, perStream),
			[]way{each, process, fetch}},
		{fmt.Sprintf("B15b: %d partitions in one stream", many), consumer.SubjectPerPartition("BENCH", "bench", many), []way{filters, process, fetch}},
	} {
		if !strings.Contains(r.title, *onlyFlag) {
			continue
		}
		r.ways = slices.DeleteFunc(r.ways, func(w way) bool { return !strings.Contains(w.name, *waysFlag) })
		if err := r.measure(out); err != nil {
			return err
		}
	}
	return nil
}

// measure fills the layout once, and reads it in each way in each run.
func (r *row) measure(out io.Writer) error {
	b, err := newBacklog(r.layout)
	if err != nil {
		return err
	}
	defer b.close()
	title := fmt.Sprintf("%s, %d readers, %d messages of %d B", r.title, *readersFlag, b.messages, *sizeFlag)
	return rig.Measure(out, title, *runsFlag, func(m *rig.Run) error {
		took := make([]spent, len(r.ways))
		for i := range r.ways {
			k := (i + m.Number) % len(r.ways) // what comes first or after what may matter
			ctx, cancel := context.WithTimeout(context.Background(), rig.Limit)
			var err error
			b.begin()
			took[k], err = r.ways[k].read(ctx, b)
			cancel()
			if err == nil {
				err = b.verdict()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.ways[k].name, err)
			}
		}
		r.report(m, b.messages, took)
		return nil
	})
}

func (r *row) report(m *rig.Run, messages int, took []spent) {
	n := float64(messages)
	for k, w := range r.ways {
		m.Add(w.name, n/took[k].wall.Seconds(), "msg/s", "")
		m.Add(w.name+": processor time", float64(took[k].cpu.Nanoseconds())/n/1000, "µs/msg", "")
		if took[k].writes > 0 {
			m.Add(w.name+": messages for each write of an offset", n/float64(took[k].writes), "msgs", "")
		}
		if k > 0 && *waysFlag == "" {
			m.Add(w.name+": rate by the first's", took[0].wall.Seconds()/took[k].wall.Seconds(), "times", w.goal)
			m.Add(w.name+": the first's processor time by this", took[0].cpu.Seconds()/took[k].cpu.Seconds(), "times", w.goal)
		}
	}
}
