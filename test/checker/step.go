package checker

import (
	"slices"
	"time"
)

// judgeOwners judges the workers that a commit lists, by their heartbeats.
func (m *model) judgeOwners(e event, v *view) {
	for _, r := range v.refs {
		h := r.holder()
		if m.late && (m.highest == 0 || m.now != nil && m.now.lists(h)) {
			continue // from before the checker's time
		}
		m.expect(func() bool { l := m.life(h); return l != nil && (l.unheard || !l.first.After(e.at)) },
			violation(UnknownOwner, e, v.version, "%v is listed, no heartbeat of it was seen before", h))
	}
}

func (v *view) lists(h Holder) bool {
	return slices.ContainsFunc(v.refs, func(r ref) bool { return r.holder() == h })
}

// allNew reports whether every entry has the commit's own epoch. After a declared loss that is a reissue, also where the loss
// itself cannot be seen from here: of a payload, or of what only heartbeats remember.
func (v *view) allNew() bool {
	for _, p := range v.slots {
		if p.owned && p.epoch != v.version {
			return false
		}
	}
	return len(v.slots) > 0
}

// judgeStep compares a commit with the one before.
func (m *model) judgeStep(e event, v *view, reissue bool) {
	if m.highest > 0 && m.now == nil {
		return // the content of the one before is not known
	}
	was := m.now
	if was == nil {
		was = &view{}
		if m.late {
			return
		}
	}
	var live []Holder
	if reissue {
		live = m.live(e.at.Add(-time.Second))
	}
	faults := map[Holder]string{}
	gained := map[Holder]bool{}
	for id, p := range v.slots {
		q, before := was.slots[id]
		same := before && q.owned == p.owned && q.owner == p.owner
		switch {
		case reissue:
			m.judgeReissue(e, v, id, p, live)
		case p.owned && same:
			if p.epoch != q.epoch {
				m.violate(EpochKept, e, v.version, "%s stays with %v, its epoch goes from %d to %d", id, p.owner, q.epoch, p.epoch)
			}
		case p.owned:
			m.judgeGain(e, v, id, p, faults)
			gained[p.owner] = true
		}
		if !reissue && before && q.owned && !same {
			m.judgeGrace(e, v, was, id, p, q)
		}
		if !reissue {
			m.judgeFrom(e, v.version, id, p.from, q, before && q.owned && !same)
		}
	}
	if reissue {
		return
	}
	m.judgeCapacity(e, v, gained)
	for id, q := range was.slots {
		if _, still := v.slots[id]; !still {
			m.judgeFrom(e, v.version, id, nil, q, q.owned)
		}
	}
}

// judgeGain judges an entry whose owner is new. faults remembers what speaks against an owner.
func (m *model) judgeGain(e event, v *view, id string, p part, faults map[Holder]string) {
	if p.epoch != v.version || p.epoch <= m.epochs[id] {
		m.violate(EpochNew, e, v.version, "%s goes to %v under epoch %d, the highest before was %d", id, p.owner, p.epoch, m.epochs[id])
	}
	why, ok := faults[p.owner]
	if !ok {
		why = m.targetFault(p.owner, e.at)
		faults[p.owner] = why
	}
	if why != "" {
		m.violate(GoneOwner, e, v.version, "%s goes to %v, %s", id, p.owner, why)
	}
	if l := m.life(p.owner); p.label != "" && l != nil && !slices.Contains(l.labels, p.label) && !(m.c.spill && !m.carried(p.label, e.at)) {
		m.violate(Labels, e, v.version, "%s with label %q goes to %v, which has %q", id, p.label, p.owner, l.labels)
	}
}

// carried reports whether a worker that takes part, and was there for some time, carries the label.
func (m *model) carried(label string, at time.Time) bool {
	for _, w := range m.workers {
		l := w.current()
		if l == nil || l.ended != alive || w.value.gone() || w.value.State == "draining" || !slices.Contains(l.labels, label) {
			continue
		}
		if l.first.Before(at.Add(-time.Second)) {
			return true
		}
	}
	return false
}

// judgeCapacity judges what the workers that are given something have altogether.
func (m *model) judgeCapacity(e event, v *view, gained map[Holder]bool) {
	have := map[Holder]capacity{}
	for _, p := range v.slots {
		if p.owned && gained[p.owner] {
			c := have[p.owner]
			c.Partitions++
			c.Weight += p.weight
			if p.weight == 0 {
				c.Weight += 100
			}
			have[p.owner] = c
		}
	}
	for h, c := range have {
		l := m.life(h)
		if l != nil && (l.limit.Partitions > 0 && c.Partitions > l.limit.Partitions || l.limit.Weight > 0 && c.Weight > l.limit.Weight) {
			m.violate(Capacity, e, v.version, "%v has %+v and takes %+v", h, c, l.limit)
		}
	}
}

// judgeGrace judges a partition that was taken from its owner: not within the grace that the commit before gives to it, unless its ID
// was claimed anew, or the partition has left the source.
func (m *model) judgeGrace(e event, v, was *view, id string, p, q part) {
	i := slices.IndexFunc(was.refs, func(r ref) bool { return r.holder() == q.owner })
	if i < 0 || p.retired || e.at.UnixMilli() >= was.refs[i].GraceUntil || p.owned && p.owner.Worker == q.owner.Worker {
		return
	}
	if l := m.life(q.owner); l == nil || l.heir == nil {
		m.violate(GraceKept, e, v.version, "%s leaves %v, which has a grace until %v", id, q.owner,
			time.UnixMilli(was.refs[i].GraceUntil).UTC().Format(timeForm))
	}
}

// judgeFrom judges the `from` of a partition against its entry in the commit before; lost: the owner there is its owner no more.
func (m *model) judgeFrom(e event, version int64, id string, from []Item, was part, lost bool) {
	due := was.from
	if lost {
		due = append(slices.DeleteFunc(slices.Clone(was.from), func(i Item) bool { return i.Holder == was.owner }), Item{was.owner, version})
	}
	if sameItems(from, due) {
		return
	}
	for _, it := range from {
		if !slices.Contains(due, it) {
			m.violate(FromForeign, e, version, "%s lists %v at %d; due are %v", id, it.Holder, it.Version, due)
		}
	}
	for _, it := range due {
		if slices.ContainsFunc(from, func(i Item) bool { return i.Holder == it.Holder }) {
			continue
		}
		m.expect(func() bool { return m.released(it.Holder, it.Version, id, e.at) },
			violation(FromMissing, e, version, "%s does not list %v at %d, which is not proved released", id, it.Holder, it.Version))
	}
}

func sameItems(a, b []Item) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

func (m *model) judgeReissue(e event, v *view, id string, p part, live []Holder) {
	if p.owned && p.epoch != v.version {
		m.violate(Reissued, e, v.version, "%s keeps epoch %d", id, p.epoch)
	}
	for _, h := range live {
		if !slices.Contains(p.from, Item{h, v.version}) {
			m.violate(Reissued, e, v.version, "%s does not list %v, which may run it", id, h)
		}
	}
}

// live returns the incarnations that are alive now and were so at that time.
func (m *model) live(since time.Time) []Holder {
	var live []Holder
	for _, w := range m.workers {
		if l := w.current(); l != nil && l.ended == alive && !l.legacy && !w.value.gone() && l.first.Before(since) {
			live = append(live, l.Holder)
		}
	}
	return live
}
