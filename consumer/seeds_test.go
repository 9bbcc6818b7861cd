package consumer

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
)

// Any range can be run: go test ./consumer -run "Seeds|Uses" -seeds 1-1000 -timeout 0
var seeds = flag.String("seeds", "1-"+lastSeed, "the range of seeds, first-last")

var logs = flag.Bool("logs", false, "print what the readers log, with virtual time")

// TestSeeds runs groups through seeded sequences of faults in virtual time, while messages come in, and asks the ledger for gaps, order, and repeats of
// what was committed.
func TestSeeds(t *testing.T) { eachSeed(t, runSeed) }

// eachSeed runs a scenario with every seed of the range.
func eachSeed(t *testing.T, run func(t *testing.T, seed uint64)) {
	var from, to uint64
	first, last, ok := strings.Cut(*seeds, "-")
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

// storm is one seeded run.
type storm struct {
	*world
	rng   *rand.Rand
	log   []string
	began time.Time
}

func runSeed(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	n := 3 + rng.IntN(20)
	opts := []worldOption{withFiles(), withLayout([]Layout{
		SubjectPerPartition("ORDERS", "orders", n), SpreadOver("ORDERS", "orders", n, 5),
	}[rng.IntN(2)])}
	if rng.IntN(2) == 0 {
		opts = append(opts, withOptions(WithSharedAbove(0)))
	}
	if rng.IntN(2) == 0 {
		opts = append(opts, withOptions(WithBuffer(1+rng.IntN(30), 1<<20)))
	}
	bubble(t, func(w *world) {
		s := &storm{world: w, rng: rng, began: time.Now()}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d, %d partitions:\n%s", seed, w.parts, strings.Join(s.log, "\n"))
			}
		})
		if rng.IntN(4) > 0 {
			w.create()
		}
		for range 1 + rng.IntN(4) {
			s.start()
		}
		created := false
		for i := range 25 {
			if i >= 3 && !created {
				created = true
				w.create()
			}
			s.step()
			if created {
				s.publish(rng.IntN(60))
			}
			time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
		}
		s.settle()
	}, opts...)
}

func (s *storm) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%9v ", time.Since(s.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (s *storm) start() {
	m := s.make(s.logger()...)
	cost := time.Duration(s.rng.Int64N(int64(2 * time.Millisecond)))
	s.note("start %s, %v a message", m.name, cost)
	handler := func(context.Context, Message) error {
		time.Sleep(cost)
		return nil
	}
	if s.rng.IntN(3) > 0 {
		m.processWith(handler)
		return
	}
	m.fetching(1 + s.rng.IntN(50))
}

// logger makes the next member log, where that is asked for.
func (s *storm) logger() []Option {
	if !*logs {
		return nil
	}
	return []Option{WithLogger(slog.New(slog.NewTextHandler(os.Stdout, nil)).With("reader", fmt.Sprintf("r%d", len(s.members))))}
}

// fetching makes the member fetch and acknowledge in a loop.
func (m *member) fetching(batch int) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.work.Go(func() {
		for {
			ms, err := m.Fetch(ctx, batch)
			select {
			case <-ctx.Done():
				return
			case <-m.closing:
				return
			default:
			}
			if m.dead.Load() {
				return
			}
			if err != nil {
				m.w.t.Errorf("%s: %v", m.name, err)
				return
			}
			for _, msg := range ms {
				m.w.ledger.handed(m.name, msg)
			}
			for _, msg := range ms {
				m.w.ledger.acks(m.name, msg)
			}
			m.w.ledger.answered(m.name, m.Ack(ctx, ms...), ms)
		}
	})
}

// step makes one thing happen.
func (s *storm) step() {
	n := s.rng.IntN(100)
	live := s.live()
	if len(live) == 0 {
		s.start()
		return
	}
	v := live[s.rng.IntN(len(live))]
	switch {
	case n < 15 && len(live) < 6:
		s.start()
	case n < 24 && len(live) > 1:
		s.note("close %s", v.name)
		v.client.Gate().Heal()
		v.client.Gate().Delay(0)
		v.leave()
	case n < 34 && len(live) > 1:
		s.note("kill %s", v.name)
		v.kill()
	case n < 46:
		s.note("cut %s", v.name)
		v.client.Gate().Cut()
	case n < 54:
		s.note("hold the replies to %s", v.name)
		v.client.Gate().Hold(natstest.FromServer)
	case n < 60:
		s.note("lose what %s sends", v.name)
		v.client.Gate().Lose(natstest.ToServer)
	case n < 66:
		s.note("drop the connection of %s", v.name)
		v.client.Gate().Drop()
	case n < 72:
		d := time.Duration(s.rng.Int64N(int64(100 * time.Millisecond)))
		s.note("delay %s by %v", v.name, d)
		v.client.Gate().Delay(d)
	case n < 90:
		s.note("heal everybody")
		s.heal()
	default:
		s.note("restart the server")
		s.restart()
	}
}

func (s *storm) heal() {
	for _, m := range s.live() {
		m.client.Gate().Heal()
		m.client.Gate().Delay(0)
	}
}

// settle ends all faults and waits until everything is read.
func (s *storm) settle() {
	s.note("faults end")
	s.heal()
	if len(s.live()) == 0 {
		s.start()
	}
	took := s.waitRead(time.Minute)
	s.note("read after %v", took)
	s.t.Logf("read %v after the faults ended; %d messages, %d repeats", took.Round(time.Millisecond), s.ledger.count(), s.ledger.again())
}
