package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// Next makes the next commit of the answer to p.Strategy. Errors wrap types.ErrInvalidAssignment, or types.ErrCoverageMismatch
// where the result would not be the source, each partition once.
func (p *Problem) Next(owners []int) (Result, error) { return p.NextOf(Answer{Owners: owners}) }

// NextOf is Next for an answer that may park partitions.
func (p *Problem) NextOf(a Answer) (Result, error) {
	if err := p.check(a); err != nil {
		return Result{}, err
	}
	b := builder{
		Problem: p, history: newHistory(&p.in), changed: p.in.Previous == nil || len(p.in.Reissue) > 0,
		why: maps.Clone(p.reasons),
	}
	b.placeAll(a)
	b.retire()
	state := &State{Version: p.in.Version, Slices: b.listedSlices(), Parked: b.parkedEntries()}
	if err := b.cover(state); err != nil {
		return Result{}, err
	}
	return Result{State: state, Changed: b.changed, Moved: b.moved, Forced: b.forced, Gained: b.gained}, nil
}

// check reports why the answer cannot be used.
func (p *Problem) check(a Answer) error {
	in := p.Strategy
	if len(a.Reasons) > 0 && len(a.Owners) == len(in.Partitions) {
		placed := types.AssignmentInput{Workers: in.Workers}
		var owners []int
		for i, w := range a.Owners {
			if w == types.NoOwner && a.Reasons[i] != "" {
				continue
			}
			placed.Partitions, owners = append(placed.Partitions, in.Partitions[i]), append(owners, w)
		}
		in, a.Owners = placed, owners
	}
	return validate(in, a.Owners, func(w *types.Worker, part *types.Partition) bool {
		return p.spilled[part.Label] || mayHave(w, part)
	})
}

type builder struct {
	*Problem
	why     map[int32]string // why partitions are parked
	history *history
	owner   []int32                   // of each partition: a listed worker, or park
	entries [][]types.AssignmentEntry // by listed worker
	// touched: the worker has an entry that differs from the previous commit, or is not in it.
	touched []bool
	parked  []parkedEntry

	changed       bool
	moved, forced int
	gained        map[string]bool
}

type parkedEntry struct {
	id string
	types.ParkedEntry
}

// placeAll gives every partition of the source its entry.
func (b *builder) placeAll(a Answer) {
	b.owner = make([]int32, len(b.ids))
	counts := make([]int, len(b.listed))
	asked := 0
	for i, fate := range b.fate {
		if fate == askStrategy {
			if w := a.Owners[asked]; w == types.NoOwner {
				fate, b.why[int32(i)] = park, a.Reasons[asked]
			} else {
				fate = b.targets[w]
			}
			asked++
		}
		b.owner[i] = fate
		if fate != park {
			counts[fate]++
		}
	}
	b.touched = make([]bool, len(b.listed))
	b.entries = make([][]types.AssignmentEntry, len(b.listed))
	for w, n := range counts {
		b.entries[w] = make([]types.AssignmentEntry, 0, n)
	}
	for i, w := range b.owner {
		if w == park {
			b.parked = append(b.parked, b.leave(int32(i)))
			continue
		}
		b.entries[w] = append(b.entries[w], b.assign(int32(i), w))
	}
}

// kept reports whether what the last commit says of a partition may stay.
func (b *builder) kept(e *prevEntry) bool {
	if e == nil || len(b.in.Reissue) > 0 {
		return false
	}
	_, twice := b.prev.doubles[e.id]
	return !twice
}

// assign returns the entry of partition i with the listed worker w.
func (b *builder) assign(i, w int32) types.AssignmentEntry {
	part, e := b.partition(i), b.prev.of(i)
	if e != nil && e.slice >= 0 {
		b.count(part, e.slice, w)
		if b.kept(e) && b.prev.holders[e.slice] == b.listed[w].Holder {
			same := *e.entry
			if !same.Partition.Equal(*part) {
				same.Partition = *part
				b.touched[w] = true
			}
			return same
		}
	}
	b.touched[w] = true
	return types.AssignmentEntry{Partition: *part, Epoch: b.in.Version, From: b.history.of(&b.prev, e)}
}

func (b *builder) count(part *types.Partition, slice, w int32) {
	if b.prev.holders[slice].Worker == b.listed[w].Worker {
		return
	}
	b.moved++
	before := b.prev.listed[slice]
	if before < 0 || part.Label != "" && !b.spilled[part.Label] && !slices.Contains(b.listed[before].Labels, part.Label) {
		b.forced++
		return
	}
	if b.listed[before].Target && b.listed[before].GraceUntil == 0 {
		if b.gained == nil {
			b.gained = make(map[string]bool)
		}
		b.gained[b.listed[w].Worker] = true
	}
}

// leave returns the entry of partition i, which is parked.
func (b *builder) leave(i int32) parkedEntry {
	part, e := b.partition(i), b.prev.of(i)
	n := parkedEntry{id: b.ids[i], ParkedEntry: types.ParkedEntry{Reason: b.why[i]}}
	if b.kept(e) && e.park != nil {
		if e.park.Reason == n.Reason && !e.park.Retired && e.park.Partition.Equal(*part) {
			n.ParkedEntry = *e.park
			return n
		}
		n.From = e.park.From
	} else {
		n.From = b.history.of(&b.prev, e)
	}
	n.Partition = *part
	b.changed = true
	return n
}

// retire keeps what is not proved released of the partitions that left the source.
func (b *builder) retire() {
	for i := range b.prev.gone {
		e := &b.prev.gone[i]
		if b.kept(e) && e.park != nil && e.park.Retired {
			if !b.history.spent(e.park.From, e.id) { // else it goes, which is no change worth a commit
				b.parked = append(b.parked, parkedEntry{e.id, *e.park})
			}
			continue
		}
		b.changed = true
		if from := b.history.of(&b.prev, e); len(from) > 0 {
			entry := types.AssignmentEntry{Partition: e.entry.Partition, From: from}
			b.parked = append(b.parked, parkedEntry{e.id, types.ParkedEntry{AssignmentEntry: entry, Reason: reasonRetired, Retired: true}})
		}
	}
}

func (b *builder) parkedEntries() []types.ParkedEntry {
	if len(b.parked) == 0 {
		return nil
	}
	slices.SortFunc(b.parked, func(a, c parkedEntry) int { return strings.Compare(a.id, c.id) })
	out := make([]types.ParkedEntry, len(b.parked))
	for i := range b.parked {
		out[i] = b.parked[i].ParkedEntry
	}
	return out
}

// listedSlices returns what each listed worker gets. The entries of a worker for which nothing changes are the same memory as before.
func (b *builder) listedSlices() []Slice {
	before := make(map[string]*Slice, len(b.prev.holders))
	for i := range b.prev.holders {
		s := &b.in.Previous.Slices[i]
		before[s.Worker] = s
	}
	b.changed = b.changed || len(b.listed) != len(b.prev.holders)
	out := make([]Slice, len(b.listed))
	for i, w := range b.listed {
		out[i] = Slice{Holder: w.Holder, GraceUntil: w.GraceUntil, Entries: b.entries[i]}
		was := before[w.Worker]
		switch {
		case was == nil || was.Holder != w.Holder || b.touched[i] || len(was.Entries) != len(b.entries[i]):
			b.changed = true
			b.clear(out[i].Entries)
		default:
			out[i].Entries = was.Entries
			b.changed = b.changed || was.GraceUntil != w.GraceUntil
		}
	}
	return out
}

// clear ends histories that are over, of entries that stay in a slice that is written anew anyway: so they do not come along with the next
// owner, who would have to look for holders that nobody remembers.
func (b *builder) clear(entries []types.AssignmentEntry) {
	for i := range entries {
		if e := &entries[i]; len(e.From) > 0 && e.Epoch != b.in.Version && b.history.spent(e.From, e.ID()) {
			e.From = nil
		}
	}
}

// cover checks the result against the source: every partition is where it was put, once, and nothing else is.
func (b *builder) cover(s *State) error {
	at := make([]int, len(s.Slices))
	parked := 0
	skipRetired := func() {
		for parked < len(s.Parked) && s.Parked[parked].Retired {
			parked++
		}
	}
	skipRetired()
	for i, w := range b.owner {
		var got *types.Partition
		switch {
		case w != park && at[w] < len(s.Slices[w].Entries):
			got = &s.Slices[w].Entries[at[w]].Partition
			at[w]++
		case w == park && parked < len(s.Parked):
			got = &s.Parked[parked].Partition
			parked++
			skipRetired()
		}
		if got == nil || !got.Equal(*b.partition(int32(i))) {
			return fmt.Errorf("%w: %q is missing", types.ErrCoverageMismatch, b.ids[i])
		}
	}
	for w, n := range at {
		if len(s.Slices[w].Entries) != n {
			return fmt.Errorf("%w: %q has %d partitions too many", types.ErrCoverageMismatch, s.Slices[w].Worker, len(s.Slices[w].Entries)-n)
		}
	}
	if parked != len(s.Parked) {
		return fmt.Errorf("%w: %d parked partitions too many", types.ErrCoverageMismatch, len(s.Parked)-parked)
	}
	return nil
}
