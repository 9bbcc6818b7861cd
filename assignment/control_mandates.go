package assignment

import (
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// Between two looks at a worker that is to return something: heartbeats that only say so wake nobody.
const (
	controlSoon  = 25 * time.Millisecond
	controlLater = 250 * time.Millisecond
)

// mandates are the orders that bind the leader. They belong to the loop.
type mandates struct {
	papers map[string]paper // by key
	// generation grows with each change that calls for a decision.
	generation int
	drains     map[string]types.DrainMode // by worker
	evicted    map[types.Holder]bool
	barred     map[string][]types.Holder // who is not to have a partition, by its ID
	steps      map[types.Holder]step     // of drains that go one by one
	asked      map[types.Holder]time.Time
	patience   time.Duration
	// released is [WorkerMonitor.Released].
	released func(h types.Holder, version int64, partitionID string) bool
}

// step is the partition that a drain has taken from its worker last.
type step struct {
	partition string
	version   int64 // that took it
	at        time.Time
}

func newMandates(cfg *Config, released func(types.Holder, int64, string) bool) *mandates {
	return &mandates{
		papers: map[string]paper{}, drains: map[string]types.DrainMode{}, evicted: map[types.Holder]bool{}, barred: map[string][]types.Holder{},
		steps: map[types.Holder]step{}, asked: map[types.Holder]time.Time{}, patience: cfg.DrainPatience, released: released,
	}
}

// take brings the mandates up to date. An order over which another one was written stands until that is answered.
func (m *mandates) take(p pile) {
	for key, x := range p.standing {
		was, known := m.papers[key]
		if known = known && sameMandate(&was, &x); !known && x.Kind != types.ControlEvictWorker {
			m.generation++
		}
		m.papers[key] = x
	}
	for key, x := range m.papers {
		if _, stands := p.standing[key]; stands || p.open[key] {
			continue
		}
		if delete(m.papers, key); x.Kind == types.ControlDrain {
			m.generation++
		}
	}
	clear(m.drains)
	clear(m.evicted)
	clear(m.barred)
	for _, x := range m.papers {
		h := types.Holder{Worker: x.Worker, Incarnation: x.Incarnation}
		switch x.Kind {
		case types.ControlDrain:
			m.drains[x.Worker] = x.Mode
		case types.ControlEvictWorker:
			m.evicted[h] = true
		case types.ControlEvictPartition:
			m.barred[x.Partition] = append(m.barred[x.Partition], h)
		}
	}
}

func sameMandate(a, b *paper) bool {
	return a.Kind == b.Kind && a.Worker == b.Worker && a.Mode == b.Mode && a.Partition == b.Partition && a.Incarnation == b.Incarnation
}

// evicts reports whether a worker is to have no seat: it is evicted itself, or the commit still lists a life of its ID that is.
// Only when that is out of the commit the next life is one that joins.
func (m *mandates) evicts(h types.Holder, slice *plan.Slice) bool {
	return m.evicted[h] || slice != nil && m.evicted[slice.Holder]
}

// drain makes the seat that of a worker that is drained.
func (m *mandates) drain(w *seat, slice *plan.Slice, now time.Time, s *sitting) {
	w.Target, w.Listed = false, true
	if m.drains[w.Worker.Worker] != types.DrainOneByOne || slice == nil || len(slice.Entries) == 0 {
		return
	}
	if last, ok := m.steps[w.Holder]; ok && !m.released(w.Holder, last.version, last.partition) && now.Sub(last.at) < m.patience {
		w.waits, w.Keep = true, func(id string) bool { return !m.bars(id, w.Holder) }
		wait := controlSoon
		if now.Sub(last.at) > time.Second {
			wait = controlLater
		}
		s.until(now.Add(wait))
		return
	}
	next := slice.Entries[0].ID()
	w.next, w.Keep = next, func(id string) bool { return id != next }
}

func (m *mandates) bars(partitionID string, h types.Holder) bool {
	return slices.Contains(m.barred[partitionID], h)
}

// ban returns, by partition, the workers among the seats that are not to have it.
func (m *mandates) ban(seats []seat) map[string][]string {
	banned := map[string][]string{}
	for id, holders := range m.barred {
		for i := range seats {
			if slices.Contains(holders, seats[i].Holder) {
				banned[id] = append(banned[id], seats[i].Worker.Worker)
			}
		}
	}
	return banned
}

// stepped notes what a decision took from workers that are drained one by one.
func (m *mandates) stepped(r *jobResult, now time.Time) {
	for i := range r.seats {
		if w := &r.seats[i]; w.next != "" {
			m.steps[w.Holder] = step{w.next, versionOf(r.committed), now}
		}
	}
	for h := range m.steps {
		if _, drains := m.drains[h.Worker]; !drains {
			delete(m.steps, h)
		}
	}
}

// due reports whether a drain has its next step to make.
func (s *sitting) due() bool {
	return slices.ContainsFunc(s.seats, func(w seat) bool { return w.next != "" })
}
