//go:build unix

package chaos

import (
	"flag"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var freezes = flag.Int("freezes", 3, "how many times a process is frozen")

// Row 17, and promise P4: a process is frozen past its TTL, its partitions run elsewhere, it is thawed and goes on where it was,
// before a write. Each such write is attempted, and the sink refuses it.
func TestFreeze(t *testing.T) {
	w := newWitness(t)
	// Given IDs and one of the pool: they come back in different ways.
	procs := []*process{start(t, w, "pod-0"), start(t, w, "pod-1"), start(t, w, "")}
	w.waitFor(patience, "every partition is written", func(last map[string]write) bool { return len(last) == partitions })
	var sum tally
	for sum.freezes < *freezes {
		victim := procs[rand.IntN(len(procs))]
		if freeze(t, w, victim, &sum) {
			continue
		}
		// Nothing ran there yet: it has only just come back.
		victim.waitFor(100*time.Millisecond, func() bool { return len(victim.running) > 0 })
	}
	t.Logf("%d freezes of %v to %v: %d late writes attempted, %d refused by the sink; %d writes stored in all",
		sum.freezes, sum.shortest.Round(time.Millisecond), sum.longest.Round(time.Millisecond), sum.attempted, sum.refused, w.stored())
	require.GreaterOrEqual(t, sum.attempted, sum.freezes, "each freeze has a late write")
	require.Equal(t, sum.attempted, sum.refused)
	w.waitFor(patience, "every partition is written again, by a process that is not frozen", progress(w))
	for _, p := range procs {
		p.stop()
	}
}

// progress returns a condition that holds when each partition was written since now.
func progress(w *witness) func(map[string]write) bool {
	from := w.stored()
	return func(last map[string]write) bool { return len(last) == partitions && w.writes > from+20*partitions }
}

// tally sums up what came of the freezes.
type tally struct {
	freezes, attempted, refused int
	shortest, longest           time.Duration
}

// freeze holds the handlers of a process just before they write, freezes it, waits until everything it ran has been written by others
// under higher epochs, thaws it, and looks what comes of its writes. It reports false if the process runs nothing.
func freeze(t *testing.T, w *witness, p *process, sum *tally) bool {
	t.Helper()
	from := p.said()
	p.tell("hold")
	var late []run
	ready := func() bool { late = heldIn(p.events[from:]); return len(late) > 0 && len(late) >= len(p.running) }
	if !p.waitFor(time.Second, ready) && len(late) == 0 {
		p.tell("go")
		p.wait(patience, "it holds nobody any more", func() bool { // or the next freeze would take who is held now for held then
			return slices.ContainsFunc(p.events[from:], func(e event) bool { return e.What == passing })
		})
		return false
	}
	signal(t, p.proc, syscall.SIGSTOP)
	began := time.Now()
	worker := p.workerID()
	w.waitFor(patience, "the frozen process's partitions are written elsewhere, under higher epochs", func(last map[string]write) bool {
		for _, r := range late {
			if l := last[r.partition]; l.epoch <= r.epoch || l.worker == worker {
				return false
			}
		}
		return time.Since(began) > ttl // asked at each write of the others
	})
	frozen := time.Since(began)
	p.tell("go")
	signal(t, p.proc, syscall.SIGCONT)
	results := map[run]event{}
	p.wait(patience, "the late writes are attempted and decided", func() bool {
		for _, e := range p.events[from:] {
			if r := (run{e.Partition, e.Epoch}); e.What == refused || e.What == failed {
				results[r] = e
			}
		}
		for _, r := range late {
			if _, ok := results[r]; !ok {
				return false
			}
		}
		return true
	})
	sum.add(t, p.since(from), late, frozen)
	return true
}

// heldIn returns the runs that wait just before a write.
func heldIn(events []event) []run {
	var all []run
	for _, e := range events {
		if e.What == held {
			all = append(all, run{e.Partition, e.Epoch})
		}
	}
	return all
}

// add judges every late write: the run was held, and what it did next is an attempt that was refused because of a higher epoch.
func (s *tally) add(t *testing.T, events []event, late []run, frozen time.Duration) {
	t.Helper()
	s.freezes++
	if s.shortest == 0 || frozen < s.shortest {
		s.shortest = frozen
	}
	s.longest = max(s.longest, frozen)
	for _, r := range late {
		after := afterHeld(events, r)
		if len(after) > 0 && after[0].What == attempt {
			s.attempted++
		}
		if len(after) > 1 && after[1].What == refused && after[1].Highest > r.epoch {
			s.refused++
			continue
		}
		t.Errorf("%s under epoch %d, frozen for %v: %+v", r.partition, r.epoch, frozen, after)
	}
}

// afterHeld returns what the run did at the sink since it was held.
func afterHeld(events []event, r run) (after []event) {
	for _, e := range events {
		switch {
		case e.Partition != r.partition || e.Epoch != r.epoch:
		case e.What == held:
			after = nil
		case e.What != began && e.What != ended:
			after = append(after, e)
		}
	}
	return after
}

func signal(t *testing.T, p *proc, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}
