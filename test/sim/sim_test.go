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
	rng    *rand.Rand
	log    []string
	began  time.Time
	faulty map[*grouptest.Worker]bool
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
	opts := []grouptest.Option{grouptest.Partitions(partitions), grouptest.FileStorage(), grouptest.Drain(drain), timing}
	if *logged {
		opts = append(opts, grouptest.Logged())
	}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := &world{Group: g, rng: rng, began: time.Now(), faulty: map[*grouptest.Worker]bool{}}
		t.Cleanup(func() {
			if t.Failed() {
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
	n := w.rng.IntN(100)
	v := w.pick()
	switch {
	case v == nil || n < 15 && len(w.Live()) < 8:
		w.note("start a worker")
		w.startOne()
	case n < 25 && len(w.Live()) > 1:
		w.note("stop %s", v.ID())
		w.unfault(v)
		v.Stop()
	case n < 37 && len(w.Live()) > 1:
		w.note("kill %s", v.ID())
		v.Kill()
	case n < 52:
		w.note("cut %s", v.ID())
		w.faulty[v] = true
		v.Cut()
	case n < 60:
		w.note("hold the replies to %s", v.ID())
		w.faulty[v] = true
		v.Client.Gate().Hold(natstest.FromServer)
	case n < 66:
		w.note("lose what %s sends", v.ID())
		w.faulty[v] = true
		v.Client.Gate().Lose(natstest.ToServer)
	case n < 72:
		d := time.Duration(w.rng.Int64N(int64(150 * time.Millisecond)))
		w.note("delay %s by %v", v.ID(), d)
		v.Client.Gate().Delay(d)
	case n < 88:
		w.note("heal everybody")
		w.healAll()
	case n < 93:
		w.note("restart the server")
		w.Env.Restart()
	default:
		parts := grouptest.Numbered(5 + w.rng.IntN(30))
		w.note("the source has %d partitions", len(parts))
		w.SetPartitions(time.Hour, parts...) // nobody may be there to commit it for a while
	}
}

// startOne starts a worker that need not succeed at once: the network may be down for it too.
func (w *world) startOne() {
	m := w.Make()
	if err := m.Start(); err != nil {
		w.T.Errorf("start: %v", err)
	}
}

func (w *world) unfault(v *grouptest.Worker) {
	v.Client.Gate().Heal()
	v.Client.Gate().Delay(0)
	delete(w.faulty, v)
}

func (w *world) healAll() {
	for _, v := range w.Live() {
		w.unfault(v)
	}
}

// settle ends all faults and waits until everything runs: within a heartbeat life, a leader's lease, and some round trips.
func (w *world) settle() {
	w.note("faults end")
	w.healAll()
	if len(w.Live()) == 0 {
		w.startOne()
	}
	took := w.WaitAllRunning(4 * (ttl + lease))
	w.note("all running after %v", took)
	w.T.Logf("all running %v after the faults ended, %d starts", took.Round(time.Millisecond), w.Oracle.Starts())
}
