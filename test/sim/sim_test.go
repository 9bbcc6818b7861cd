// Package sim runs groups through seeded sequences of faults in virtual time and asks the witnesses whether two runs of one
// partition ever overlapped, whether every commit kept the promises, and whether everything runs again once the faults end.
//
// The suite takes 20 seeds, with the race detector 6. Any range can be run:
//
//	go test ./test/sim -run Seeds -seeds 1-5000 -timeout 0
package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
)

var (
	seeds  = flag.String("seeds", "1-"+lastSeed, "the range of seeds, first-last")
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
	// graces has the end of the restart grace of each ID that was given one.
	graces   map[string]time.Time
	strategy *faulty
	made     int // workers
	orders   int // given
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
	strategy := &faulty{good: strategy.Sticky()}
	opts := []grouptest.Option{
		grouptest.PartitionList(labelled(partitions)...), grouptest.FileStorage(), grouptest.Drain(drain), grouptest.Strategy(strategy), timing,
	}
	if *logged {
		opts = append(opts, grouptest.Logged())
	}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		w := &world{Group: g, rng: rng, began: time.Now(), operator: g.Env.Connect("operator").JS(), drained: map[string]bool{},
			graces: map[string]time.Time{}, strategy: strategy}
		t.Cleanup(func() {
			if t.Failed() || *logged {
				t.Logf("seed %d, %d partitions:\n%s", seed, partitions, strings.Join(w.log, "\n"))
			}
		})
		w.made = 2 + rng.IntN(4)
		g.Start(w.made)
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
	w.strategy.fault.Store(0)
	for _, v := range w.Live() {
		w.unfault(v)
	}
}

// repaired is how long partitions may wait after the last fault: as after a crash, for the end of a key and the handoff.
const repaired = ttl + 600*time.Millisecond

// settle ends all faults, lets in somebody for every partition, and waits until everything runs.
func (w *world) settle() {
	w.note("faults end")
	w.healAll()
	ended := time.Now()
	w.begin()
	w.begin(parti.WithLabels("x", "y"))
	for range 100 {
		w.undrain(nil)
	}
	if len(w.drained) > 0 {
		w.T.Errorf("still drained: %v", w.drained)
	}
	limit, why := w.limit(ended)
	w.WaitAllRunning(4*(ttl+lease) + maxGrace) // much longer than allowed, to see how much too long it took
	took := time.Since(ended)
	w.note("all running after %v", took)
	if took > limit {
		w.T.Errorf("all running %v after the last fault, allowed are %v: %s", took, limit, why)
	}
	w.T.Logf("all running %v after the faults ended (%v, %s), %d starts", took.Round(time.Millisecond), limit.Round(time.Millisecond), why, w.Oracle.Starts())
	w.countKeys()
}

// limit returns by when everything has to run.
func (w *world) limit(ended time.Time) (time.Duration, string) {
	var grace time.Duration
	for id, end := range w.graces {
		if !slices.ContainsFunc(w.Live(), func(v *grouptest.Worker) bool { return v.ID() == id }) {
			grace = max(grace, end.Sub(ended))
		}
	}
	if grace > 0 {
		return grace + repaired, "somebody who does not come back has its grace first"
	}
	return repaired, "as after a crash"
}

// countKeys looks for keys that nobody is to find: one heartbeat for each worker at most, and of what is there once for all, the lead, the
// commit and the group's settings, besides one for each order.
func (w *world) countKeys() {
	count := func(bucket string, counts func(key string) bool, limit int) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s, err := w.operator.Stream(ctx, "KV_"+grouptest.Namespace+"-"+bucket)
		if err != nil {
			w.T.Error(err)
			return
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			w.T.Error(err)
			return
		}
		var keys []string
		for subject := range info.State.Subjects {
			if key := strings.TrimPrefix(subject, "$KV."+grouptest.Namespace+"-"+bucket+"."); counts(key) {
				keys = append(keys, key)
			}
		}
		if len(keys) > limit {
			w.T.Errorf("%d keys in bucket %s, allowed are %d: %v", len(keys), bucket, limit, keys)
		}
		w.note("%d keys of %d in %s: %v", len(keys), limit, bucket, keys)
	}
	count("heartbeat", func(string) bool { return true }, w.made)
	count("control", func(key string) bool {
		for _, kept := range []string{"assignment._commit_log.", "assignment._payload.", "assignment._chunk."} { // these by retention
			if strings.HasPrefix(key, kept) {
				return false
			}
		}
		return true
	}, 3+w.orders)
}
