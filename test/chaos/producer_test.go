package chaos

import (
	"bufio"
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// producerMain publishes to every partition at its pace, each message exactly once, until its standard input ends.
func producerMain() error {
	s, js, end, err := connectAs(os.Getenv(envSetup))
	if err != nil {
		return err
	}
	defer end()
	out := speaker{out: bufio.NewWriter(os.Stdout)}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for p := range s.Partitions {
		all.Go(func() {
			n := 0
			for tick := time.NewTicker(s.Pace); ctx.Err() == nil; {
				n++
				publish(js, p, n)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
			out.say(saysCount, p, n)
		})
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	stop()
	all.Wait()
	out.flush()
	return err
}

// publish stores one message, whatever happens to the server meanwhile: the server drops what it has already.
func publish(js jetstream.JetStream, partition, n int) {
	subject, data := readSubject+"."+strconv.Itoa(partition), strconv.Itoa(n)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := js.Publish(ctx, subject, []byte(data), jetstream.WithMsgID(subject+"/"+data))
		cancel()
		if err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
