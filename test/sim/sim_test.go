// Package sim runs groups through seeded sequences of faults in virtual time and asks the witnesses whether two runs of one
// partition ever overlapped, whether every commit kept the promises, and whether everything runs again once the faults end.
//
// The suite takes 20 seeds. Any range can be run:
//
//	go test ./test/sim -run Seeds -seeds 1-5000 -timeout 0
package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
)

var (
	seeds  = flag.String("seeds", "1-20", "the range of seeds, first-last")
	logged = flag.Bool("logged", false, "log what every worker logs")
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func TestSeeds(t *testing.T) {
	first, last, ok := strings.Cut(*seeds, "-")
	var from, to uint64
	if _, err := fmt.Sscan(first, &from); err != nil {
		t.Fatal(err)
	}
	if to = from; ok {
		if _, err := fmt.Sscan(last, &to); err != nil {
			t.Fatal(err)
		}
	}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { run(t, seed) })
	}
}

const (
	interval = time.Second
	ttl      = 4 * time.Second
	lease    = 3 * time.Second
	maxDrain = 200 * time.Millisecond // below FenceGrace: handlers end when told to
)

// world is one seeded run.
type world struct {
	*grouptest.Group
	rng   *rand.Rand
	log   []string
	began time.Time
	// operator is a client without faults, and drained are the workers that it may have ordered to be drained.
	operator jetstream.JetStream
	drained  map[string]bool
}

func run(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	partitions := 5 + rng.IntN(30)
	drain := func(partition string) time.Duration {
		h := uint64(seed)
		for _, c := range partition {
			h = h*31 + uint64(c)
		}
		return time.Duration(h % uint64(maxDrain))
	}
	opts := []grouptest.Option{grouptest.PartitionList(labelled(partitions)...), grouptest.FileStorage(), grouptest.Drain(drain), timing}
	if *logged {
		opts = append(opts, grouptest.Logged())
	}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := &world{Group: g, rng: rng, began: time.Now(), operator: g.Env.Connect("operator").JS(), drained: map[string]bool{}}
		t.Cleanup(func() {
			if t.Failed() || *logged {
				t.Logf("seed %d, %d partitions:\n%s", seed, partitions, strings.Join(w.log, "\n"))
			}
		})
		g.Start(2 + rng.IntN(4))
		for range 25 {
			w.step()
			g.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		}
		w.settle()
	}, opts...)
}

var timing = grouptest.Manager(
	parti.WithHeartbeat(interval, ttl), parti.WithLeaderLease(lease),
	parti.WithWindows(2*time.Second, time.Second, 300*time.Millisecond), parti.WithCooldown(time.Second),
	parti.WithHandoffTimeout(-1), // a forced start is an overlap by intent
)

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%9v ", time.Since(w.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// pick returns a random live worker, or nil.
func (w *world) pick() *grouptest.Worker {
	live := w.Live()
	if len(live) == 0 {
		return nil
	}
	return live[w.rng.IntN(len(live))]
}

// step makes one thing happen.
func (w *world) step() {
	v := w.pick()
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := w.rng.IntN(total)
	for i, k := range kinds {
		if n -= k.weight; n >= 0 {
			continue
		}
		if v == nil || i == 0 && len(w.Live()) >= 8 {
			w.startOne()
			return
		}
		k.do(w, v)
		return
	}
}

func (w *world) unfault(v *grouptest.Worker) {
	v.Client.Gate().Heal()
	v.Client.Gate().Delay(0)
}

func (w *world) healAll() {
	w.Source.Fail(nil)
	for _, v := range w.Live() {
		w.unfault(v)
	}
}

// settle ends all faults, lets in somebody for every partition, and waits until everything runs: within a heartbeat life, a leader's
// lease, the longest grace, and some round trips.
func (w *world) settle() {
	w.note("faults end")
	w.healAll()
	w.begin()
	w.begin(parti.WithLabels("x", "y"))
	for range 100 {
		w.undrain(nil)
	}
	if len(w.drained) > 0 {
		w.T.Errorf("still drained: %v", w.drained)
	}
	took := w.WaitAllRunning(4*(ttl+lease) + maxGrace)
	w.note("all running after %v", took)
	w.T.Logf("all running %v after the faults ended, %d starts", took.Round(time.Millisecond), w.Oracle.Starts())
}
