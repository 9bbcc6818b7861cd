package assignment

import (
	"maps"
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// LabelReadModel is what [Calculator.LabelSnapshot] is made of.
type LabelReadModel = types.LabelState

// LabelSnapshot returns, by label, the live workers that carry it and the partitions with it that nobody owns, as of the last
// decision, whether that needed a commit or not. It has the labels that a partition asks for or a live worker carries. ok is
// false before the first decision. The maps are the caller's.
func (c *Calculator) LabelSnapshot() (pools, parked map[string]int, ok bool) {
	s := c.labels.Load()
	if s == nil {
		return nil, nil, false
	}
	return maps.Clone(s.PoolSizes), maps.Clone(s.Parked), true
}

// profile is what a decision knew of a worker beyond its ID and incarnation. Labels and capacity come with the heartbeat of that
// very incarnation, so they are never those of an earlier one.
type profile struct {
	labels   []string
	capacity types.Capacity
	target   bool
}

func profileOf(w *plan.Worker) profile {
	return profile{labels: w.Labels, capacity: w.Capacity, target: w.Target}
}

func (p profile) same(o profile) bool {
	return slices.Equal(p.labels, o.labels) && p.capacity == o.capacity && p.target == o.target
}

// labelPools watches which labels nobody carries, and since when. It belongs to the loop.
type labelPools struct {
	grace time.Duration // 0: spill at once; negative: never

	generation int      // of the source, that wanted was read from
	wanted     []string // labels that partitions ask for, sorted
	carried    map[string]bool
	carriers   map[types.Holder][]string // the labels of those who carry any
	empty      map[string]time.Time      // since when nobody carries a wanted label
	spilled    map[string]bool           // by the last decision
	reported   map[string]bool
	seen       bool
}

func newLabelPools(grace time.Duration) labelPools {
	if grace == types.NeverSpill {
		grace = -1
	}
	return labelPools{grace: grace, generation: -1, empty: make(map[string]time.Time)}
}

// see takes in who is there. committed is what a new leader found: labels whose partitions run without them were spilled before.
func (p *labelPools) see(source *sourceView, seats []seat, committed *plan.State, now time.Time) {
	if p.generation != source.generation {
		wanted := make(map[string]bool)
		for i := range source.list.partitions {
			wanted[source.list.partitions[i].Label] = true
		}
		delete(wanted, "")
		p.generation, p.wanted = source.generation, slices.Sorted(maps.Keys(wanted))
	}
	p.carry(seats)
	var before map[string]bool
	if !p.seen && len(p.wanted) > 0 {
		before = spilledBefore(committed, seats)
	}
	p.seen = p.seen || committed != nil
	for _, l := range p.wanted {
		if _, known := p.empty[l]; known || p.carried[l] {
			continue
		}
		p.empty[l] = now
		if before[l] {
			p.empty[l] = now.Add(-max(0, p.grace))
		}
	}
	for l := range p.empty {
		if _, wanted := slices.BinarySearch(p.wanted, l); p.carried[l] || !wanted {
			delete(p.empty, l)
		}
	}
}

// carry takes in which labels are carried. One that is held carries what it did: its heartbeat is not there to tell, and it may be alive.
func (p *labelPools) carry(seats []seat) {
	known := p.carriers
	p.carried, p.carriers = make(map[string]bool), make(map[types.Holder][]string)
	for i := range seats {
		w := &seats[i]
		labels := w.Labels
		if w.held {
			labels = known[w.Holder]
		} else if !w.Target {
			continue
		}
		if len(labels) > 0 {
			p.carriers[w.Holder] = labels
		}
		for _, l := range labels {
			p.carried[l] = true
		}
	}
}

// spilledBefore returns the labels of partitions that live workers have without carrying them.
func spilledBefore(committed *plan.State, seats []seat) map[string]bool {
	spilled := make(map[string]bool)
	if committed == nil {
		return spilled
	}
	live := make(map[types.Holder][]string)
	for i := range seats {
		if seats[i].Target {
			live[seats[i].Holder] = seats[i].Labels
		}
	}
	for i := range committed.Slices {
		labels, ok := live[committed.Slices[i].Holder]
		for j := range committed.Slices[i].Entries {
			if l := committed.Slices[i].Entries[j].Label; ok && l != "" && !slices.Contains(labels, l) {
				spilled[l] = true
			}
		}
	}
	return spilled
}

// due returns the labels that nobody has carried for the grace, and when the next one will be due; zero: none.
func (p *labelPools) due(now time.Time) (spilled map[string]bool, next time.Time) {
	spilled = make(map[string]bool)
	if p.grace < 0 {
		return spilled, next
	}
	for l, since := range p.empty {
		if at := since.Add(p.grace); !at.After(now) {
			spilled[l] = true
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return spilled, next
}

// overdue reports whether a label is due that the last decision held to.
func (p *labelPools) overdue(due map[string]bool) bool {
	for l := range due {
		if !p.spilled[l] {
			return true
		}
	}
	return false
}

// report makes the snapshot of a decision, and tells the metrics.
func (p *labelPools) report(c *Calculator, seats []seat, committed *plan.State) {
	s := &types.LabelState{PoolSizes: make(map[string]int), Parked: make(map[string]int)}
	for _, l := range p.wanted {
		s.PoolSizes[l], s.Parked[l] = 0, 0
	}
	for i := range seats {
		if !seats[i].Target {
			continue
		}
		for _, l := range slices.Compact(slices.Clone(seats[i].Labels)) {
			s.PoolSizes[l]++
			s.Parked[l] += 0
		}
	}
	if committed != nil {
		for i := range committed.Parked {
			if e := &committed.Parked[i]; !e.Retired && e.Label != "" {
				s.Parked[e.Label]++
				s.PoolSizes[e.Label] += 0
			}
		}
	}
	c.labels.Store(s)
	for l := range p.reported {
		if _, still := s.PoolSizes[l]; !still {
			c.cfg.Metrics.LabelPool(l, 0, 0)
		}
	}
	p.reported = make(map[string]bool, len(s.PoolSizes))
	for l, n := range s.PoolSizes {
		p.reported[l] = true
		c.cfg.Metrics.LabelPool(l, n, s.Parked[l])
	}
}

// relief reports whether somebody is new, or newly labelled or larger, who may have what is parked.
func (l *loop) relief(s *sitting) bool {
	return l.parked > 0 && slices.ContainsFunc(s.seats, func(w seat) bool {
		known, decided := l.profiles[w.Holder]
		return w.Target && mayTake(&w.Worker, l.parkedLabels) && !(decided && known.same(profileOf(&w.Worker)))
	})
}

// mayTake reports whether the worker may have one of the partitions that are parked, whose labels are given.
func mayTake(w *plan.Worker, parked map[string]bool) bool {
	return parked[""] || slices.ContainsFunc(w.Labels, func(l string) bool { return parked[l] })
}
