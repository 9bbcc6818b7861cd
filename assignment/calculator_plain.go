package assignment

import (
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	// maxPlain is how many plain workers get partitions: their aliases go into the batch of the commit, which takes 1,000 writes.
	maxPlain = 900
	// plainSlack is how much longer than a HeartbeatTTL a plain worker's key may stay as it is. Where its writes carry a TTL the
	// server's announcement comes earlier.
	plainSlack = time.Second
)

// plainSeat says what a worker gets that does not speak the commit protocol. Its key should expire by a TTL that it wrote; the
// key of one that wrote none is taken for expired when it has not changed for a HeartbeatTTL.
func (r *roster) plainSeat(m *Member, now time.Time, s *sitting) (plan.Worker, bool) {
	s.legacy++
	if m.State.Gone() {
		return plan.Worker{}, false
	}
	over := m.Seen.Add(r.recovery.hold + plainSlack)
	if end := r.recovery.until(now); over.Before(end) {
		over = end // the feed was cut: not to have heard of it means nothing
	}
	if !now.Before(over) {
		return plan.Worker{}, false
	}
	s.until(over)
	s.live++
	if m.State == types.WorkerDraining {
		return plan.Worker{}, false
	}
	s.targets++
	return plan.Worker{Holder: m.Holder(), Labels: m.Labels, Capacity: m.Capacity, Target: true}, true
}

// limitPlain leaves out the plain workers beyond those whose aliases fit into a commit, in the order of their IDs.
func (s *sitting) limitPlain() {
	n := 0
	s.seats = slices.DeleteFunc(s.seats, func(w seat) bool {
		if w.plain {
			n++
		}
		if !w.plain || n <= maxPlain {
			return false
		}
		s.targets--
		return true
	})
}

// aliases returns the writes that tell the plain workers what they own under the state. tooLarge says of those whose slice does not fit into a
// plain value about how many partitions would.
func (c *Calculator) aliases(s *plan.State, seats []seat) (writes []kv.Write, tooLarge map[string]overflow) {
	plain := make(map[string]bool)
	for i := range seats {
		// One that is only held is not seen now, but what it reads must say what the commit says.
		if seats[i].plain || seats[i].held && seats[i].Incarnation == "" {
			plain[seats[i].Worker.Worker] = true
		}
	}
	for i := range s.Slices {
		slice := &s.Slices[i]
		if !plain[slice.Worker] {
			continue
		}
		data, err := record.EncodeAlias(slice.Worker, s.Version, slice.Entries)
		if err != nil {
			if tooLarge == nil {
				tooLarge = make(map[string]overflow)
			}
			n := len(slice.Entries)
			tooLarge[slice.Worker] = overflow{n, int(0.9 * record.MaxAlias * float64(n) / float64(len(data))), err}
			continue
		}
		writes = append(writes, kv.Write{Key: record.AliasKey(slice.Worker), Value: data, Any: true})
	}
	return writes, tooLarge
}

// overflow is a slice of n partitions that does not fit into an alias, which about fit of them would, with a margin.
type overflow struct {
	n, fit int
	err    error
}

// bounded returns the seats with the capacities of workers whose aliases were too large bounded to what fits, so that the rest goes to others or
// is parked. As many as a worker has already it keeps, if these fit: a bound that wavers would take away what runs. One whose slice no
// capacity bounds loses its seat.
func (c *Calculator) bounded(seats []seat, tooLarge map[string]overflow, committed *plan.State) []seat {
	has := make(map[string]int)
	if committed != nil {
		for i := range committed.Slices {
			has[committed.Slices[i].Worker] = len(committed.Slices[i].Entries)
		}
	}
	var out []seat
	for _, s := range seats {
		if o, is := tooLarge[s.Worker.Worker]; is {
			most := o.fit
			if n := has[s.Worker.Worker]; n < o.n {
				most = max(most, n)
			}
			if s.Capacity.Partitions > 0 && s.Capacity.Partitions <= most {
				c.cfg.Logger.Error("a plain worker gets nothing", "worker", s.Worker.Worker, "error", o.err)
				continue
			}
			c.cfg.Logger.Warn("a plain worker gets no more than its alias holds", "worker", s.Worker.Worker, "partitions", most, "error", o.err)
			s.Capacity.Partitions = most
		}
		out = append(out, s)
	}
	return out
}
