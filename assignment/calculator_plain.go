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

// aliases returns the writes that tell the plain workers what they own under the state. tooLarge are those whose slice does not
// fit into a plain value.
func (c *Calculator) aliases(s *plan.State, seats []seat) (writes []kv.Write, tooLarge map[string]bool) {
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
			c.cfg.Logger.Error("a plain worker gets nothing", "worker", slice.Worker, "partitions", len(slice.Entries), "error", err)
			if tooLarge == nil {
				tooLarge = make(map[string]bool)
			}
			tooLarge[slice.Worker] = true
			continue
		}
		writes = append(writes, kv.Write{Key: record.AliasKey(slice.Worker), Value: data, Any: true})
	}
	return writes, tooLarge
}

// withoutWorkers returns the seats of the others.
func withoutWorkers(seats []seat, ids map[string]bool) []seat {
	return slices.DeleteFunc(slices.Clone(seats), func(s seat) bool { return ids[s.Worker.Worker] })
}
