package assignment

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// runBook remembers, from the commits alone, who may still run what, and holds every commit to it.
type runBook struct {
	// owes has for each partition the holders from whom it was taken, each with the version of the commit that took it last.
	owes map[string]map[types.Holder]int64
	// released has for each partition up to which such version a holder is proved to have returned it.
	released map[string]map[types.Holder]int64
	epochs   map[string]int64 // the highest so far
}

func newRunBook() runBook {
	return runBook{owes: map[string]map[types.Holder]int64{}, released: map[string]map[types.Holder]int64{}, epochs: map[string]int64{}}
}

func (b *runBook) isReleased(h types.Holder, version int64, id string) bool {
	return b.released[id][h] >= version
}

// release proves of about every other holder that it has returned what was taken from it.
func (b *runBook) release(rng *rand.Rand) {
	for _, id := range slices.Sorted(maps.Keys(b.owes)) {
		for _, h := range slices.SortedFunc(maps.Keys(b.owes[id]), byHolder) {
			if rng.IntN(2) == 0 {
				put(b.released, id, h, b.owes[id][h])
			}
		}
	}
}

func byHolder(a, b types.Holder) int {
	return strings.Compare(a.Worker+"/"+a.Incarnation, b.Worker+"/"+b.Incarnation)
}

func put(m map[string]map[types.Holder]int64, id string, h types.Holder, version int64) {
	if m[id] == nil {
		m[id] = map[types.Holder]int64{}
	}
	m[id][h] = version
}

// lease is what a commit says of a partition; no holder: it is parked, or has left the source.
type lease struct {
	holder types.Holder
	epoch  int64
	from   []types.From
}

func leases(s *plan.State) map[string]lease {
	out := map[string]lease{}
	if s == nil {
		return out
	}
	for _, sl := range s.Slices {
		for i := range sl.Entries {
			e := &sl.Entries[i]
			out[e.ID()] = lease{sl.Holder, e.Epoch, e.From}
		}
	}
	for i := range s.Parked {
		e := &s.Parked[i]
		out[e.ID()] = lease{from: e.From}
	}
	return out
}

// commit takes in the next commit, and reports what is wrong with it: an owner that stays keeps its epoch, a new one has the commit's version,
// above all before. `from` names everybody from whom the partition was taken and of whom no release is proved, and nobody from whom it never
// was; that of a new owner names nobody whose release is proved either.
func (b *runBook) commit(before, after *plan.State) error {
	if after == before {
		return nil
	}
	was, is := leases(before), leases(after)
	for id, old := range was {
		if now := is[id]; old.holder != (types.Holder{}) && (now.holder != old.holder || now.epoch != old.epoch) {
			put(b.owes, id, old.holder, after.Version)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.owes)) {
		if _, listed := is[id]; !listed {
			if missing := b.missing(id, nil); missing != "" {
				return fmt.Errorf("%s is forgotten while %s may run it", id, missing)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(is)) {
		if err := b.judge(id, was[id], is[id], after.Version); err != nil {
			return fmt.Errorf("%s in version %d: %w", id, after.Version, err)
		}
	}
	return nil
}

func (b *runBook) judge(id string, old, now lease, version int64) error {
	if missing := b.missing(id, now.from); missing != "" {
		return fmt.Errorf("`from` lacks %s: %v", missing, now.from)
	}
	fresh := now.holder != (types.Holder{}) && now.holder != old.holder
	for i, f := range now.from {
		if b.owes[id][f.Holder] != f.Version {
			return fmt.Errorf("`from` has %v, from whom it was taken by %d", f, b.owes[id][f.Holder])
		}
		if fresh && b.isReleased(f.Holder, f.Version, id) {
			return fmt.Errorf("`from` of a new owner has %v, which is released", f)
		}
		if slices.ContainsFunc(now.from[:i], func(o types.From) bool { return o.Holder == f.Holder }) {
			return fmt.Errorf("`from` has %v twice", f.Holder)
		}
	}
	switch {
	case now.holder == types.Holder{}:
		return nil
	case fresh && now.epoch != version:
		return fmt.Errorf("%v is new and has epoch %d", now.holder, now.epoch)
	case !fresh && now.epoch != old.epoch:
		return fmt.Errorf("%v had epoch %d and has %d", now.holder, old.epoch, now.epoch)
	case fresh && now.epoch <= b.epochs[id]:
		return fmt.Errorf("epoch %d does not exceed %d", now.epoch, b.epochs[id])
	}
	b.epochs[id] = now.epoch
	return nil
}

// missing names a holder that may run the partition and is not in the list; none: empty.
func (b *runBook) missing(id string, from []types.From) string {
	for h, version := range b.owes[id] {
		if !b.isReleased(h, version, id) && !slices.Contains(from, types.From{Holder: h, Version: version}) {
			return fmt.Sprintf("%v at %d", h, version)
		}
	}
	return ""
}
