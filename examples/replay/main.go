// Program replay shows how to read again what was read before, with no server at hand: NATS runs in this process. Readings of a sensor are
// read up to the end. Then the partition is moved back to a point in time, and to a sequence, and read again from there. The lag, which is
// how many messages follow the stored offset, is shown all along.
//
//	go run ./examples/replay
//
// It ends by itself, with exit code 0 if each time exactly what follows the position was read again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
)

var layout = consumer.SubjectPerPartition("READINGS", "readings", 2)

const (
	sensor = "boiler"
	total  = 12 // readings: half of them before a pause, half after it
	pause  = 1200 * time.Millisecond
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// run plays the scene. Everything that it starts has ended when it returns.
func run(ctx context.Context, out io.Writer) (err error) {
	js, end, err := startNATS()
	if err != nil {
		return err
	}
	defer end()
	between, err := produce(ctx, js)
	if err != nil {
		return err
	}
	r, err := consumer.NewReader(js, "dashboards", layout.Partitions(), consumer.WithLayout(layout),
		consumer.WithManagerOptions(parti.WithExpectedWorkers(1))) // so that it does not wait for others
	if err != nil {
		return err
	}
	defer r.Close(context.Background())

	v := &viewer{Reader: r, out: out, partition: layout.Partition(sensor)}
	if err := v.read(ctx, "from the beginning, since there is no offset", 1); err != nil {
		return err
	}
	if err := v.Seek(ctx, v.partition, consumer.AtTime(between)); err != nil {
		return err
	}
	if err := v.read(ctx, "again, from a moment in the pause on", total/2+1); err != nil {
		return err
	}
	third := v.sequences[2]
	if err := v.Seek(ctx, v.partition, consumer.AtSequence(third)); err != nil {
		return err
	}
	return v.read(ctx, fmt.Sprintf("again, from stream sequence %d on", third), 3)
}

// produce publishes half of the readings, waits, and publishes the others. It returns a moment in between.
func produce(ctx context.Context, js jetstream.JetStream) (between time.Time, err error) {
	if err := layout.CreateStreams(ctx, js, jetstream.StreamConfig{}); err != nil {
		return between, err
	}
	publisher, err := consumer.NewPublisher(js, layout)
	for n := 1; n <= total && err == nil; n++ {
		if n == total/2+1 {
			between = time.Now().Add(pause / 2)
			time.Sleep(pause)
		}
		_, err = publisher.Publish(ctx, sensor, fmt.Appendf(nil, "%d °C", 60+n))
	}
	return between, err
}
