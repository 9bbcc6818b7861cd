package assignment

import (
	"fmt"
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// orders takes in what operators have ordered. It reports whether that is known.
func (l *loop) orders() bool {
	d := l.c.desk
	if d == nil {
		return true
	}
	p, ok := d.look()
	if ok {
		l.pile = p
		l.roster.mandates.take(p)
	}
	return ok
}

// administer answers orders, and does what they need besides a commit.
func (l *loop) administer(s *sitting, now time.Time, until func(time.Time)) {
	if l.c.desk == nil || l.committed == nil {
		return
	}
	for _, x := range l.roster.mandates.papers {
		if l.pile.open[x.key] {
			continue // another order lies over it
		}
		if r, answer := l.progress(x, now, until); answer {
			l.c.desk.answer(r)
		}
	}
	b := bench{barred: map[string][]types.Holder{}}
	for _, w := range s.seats {
		_, drains := l.roster.mandates.drains[w.Worker.Worker]
		if w.Target || w.standby {
			b.seats = append(b.seats, w)
		} else if drains {
			b.drained = append(b.drained, w)
		}
	}
	replies := make([]reply, 0, len(l.pile.next))
	for _, x := range l.pile.next {
		r := reply{paper: x, ttl: controlAnswerTTL}
		if x.bad != nil {
			r.ControlOrder = types.ControlOrder{State: types.ControlRefused, Reason: x.bad.Error()}
		} else {
			l.judge(&r, &b)
			b.take(&r)
		}
		replies = append(replies, r)
	}
	l.pile.next = nil
	l.c.desk.answer(replies...)
}

// bench is who can be given partitions while open orders are judged one after the other: each by what those before it have changed.
type bench struct {
	seats   []seat
	drained []seat                    // who could be again, if undrained
	barred  map[string][]types.Holder // by partition, in addition to the mandates
}

func (b *bench) take(r *reply) {
	named := func(w seat) bool { return w.Worker.Worker == r.Worker }
	move := func(from, to *[]seat) {
		if i := slices.IndexFunc(*from, named); i >= 0 {
			*to = append(*to, (*from)[i])
			*from = slices.Delete(*from, i, i+1)
		}
	}
	switch {
	case r.Kind == types.ControlUndrain:
		move(&b.drained, &b.seats)
	case r.State != types.ControlAccepted:
	case r.Kind == types.ControlDrain:
		move(&b.seats, &b.drained)
	case r.Kind == types.ControlEvictWorker:
		b.seats = slices.DeleteFunc(b.seats, named)
	case r.Kind == types.ControlEvictPartition:
		b.barred[r.Partition] = append(b.barred[r.Partition], types.Holder{Worker: r.Worker, Incarnation: r.Incarnation})
	}
}

// judge decides about a new order.
func (l *loop) judge(r *reply, b *bench) {
	refuse := func(format string, args ...any) {
		r.State, r.Reason = types.ControlRefused, fmt.Sprintf(format, args...)
	}
	m, alive := l.view.Members[r.Worker]
	alive = alive && !m.Unreadable && !m.State.Gone()
	slice := l.slice(r.Worker)
	switch {
	case r.Kind == types.ControlUndrain:
		r.State, r.Reason = types.ControlDone, "it may be given partitions"
		if !alive && slice == nil {
			r.Reason = fmt.Sprintf("no live worker has the ID %q; one that comes may be given partitions", r.Worker)
		}
		return
	case !alive && (r.Kind != types.ControlDrain || slice == nil):
		refuse("unknown worker: no live worker has the ID %q", r.Worker)
		return
	case m.State == types.WorkerCoordinating && r.Kind == types.ControlDrain:
		refuse("%q is a coordinator and has no partitions: stop it", r.Worker)
		return
	case alive && m.Plain():
		refuse("worker %q does not speak the commit protocol: stop it", r.Worker)
		return
	}
	others := slices.DeleteFunc(slices.Clone(b.seats), func(w seat) bool { return w.Worker.Worker == r.Worker })
	if len(others) == 0 {
		refuse("%q is the last worker that can be given partitions", r.Worker)
		return
	}
	switch r.Kind {
	case types.ControlDrain:
		if r.Mode == "" {
			r.Mode = types.DrainAllAtOnce
		}
		if fault := l.homeless(r.Worker, m.Labels, others); fault != "" {
			refuse("%s", fault)
			return
		}
		r.ttl = controlDrainTTL
	case types.ControlEvictPartition:
		if fault := l.evictable(r, m.Holder(), slice, b, others); fault != "" {
			refuse("%s", fault)
			return
		}
		r.Incarnation = m.Incarnation
	default:
		r.Incarnation = m.Incarnation
	}
	r.State = types.ControlAccepted
}

func (l *loop) slice(worker string) *plan.Slice {
	for i := range l.committed.Slices {
		if l.committed.Slices[i].Worker == worker {
			return &l.committed.Slices[i]
		}
	}
	return nil
}

// homeless says which partition nobody else could have: one of the worker's own, or one with a label of its that an order judged before this one, in the
// same look, takes from somebody else.
func (l *loop) homeless(worker string, labels []string, others []seat) string {
	for i := range l.committed.Slices {
		slice := &l.committed.Slices[i]
		for j := range slice.Entries {
			e := &slice.Entries[j]
			if (slice.Worker == worker || slices.Contains(labels, e.Label)) && !carried(e.Label, others) {
				return fmt.Sprintf("partition %q needs label %q, which no other worker carries", e.ID(), e.Label)
			}
		}
	}
	return ""
}

func carried(label string, seats []seat) bool {
	return label == "" || slices.ContainsFunc(seats, func(w seat) bool { return slices.Contains(w.Labels, label) })
}

// evictable says why the partition cannot be taken from the worker.
func (l *loop) evictable(r *reply, h types.Holder, slice *plan.Slice, b *bench, others []seat) string {
	owner, entry := l.whereIs(r.Partition)
	switch {
	case entry == nil:
		return fmt.Sprintf("unknown partition: the last commit has no %q", r.Partition)
	case slice == nil || owner != slice.Holder || owner != h:
		at := "nobody"
		if owner.Worker != "" {
			at = owner.Worker
		}
		return fmt.Sprintf("%q does not own %q: %s does; if it still runs there, evict the worker", r.Worker, r.Partition, at)
	}
	free := slices.DeleteFunc(slices.Clone(others), func(w seat) bool {
		return l.roster.mandates.bars(r.Partition, w.Holder) || slices.Contains(b.barred[r.Partition], w.Holder)
	})
	if len(free) == 0 || !carried(entry.Label, free) {
		return fmt.Sprintf("no other worker may have %q", r.Partition)
	}
	return ""
}

// whereIs returns the owner of a partition in the last commit, nobody where it is parked, and its entry; nil where there is none.
func (l *loop) whereIs(id string) (types.Holder, *types.AssignmentEntry) {
	for i := range l.committed.Slices {
		s := &l.committed.Slices[i]
		for j := range s.Entries {
			if s.Entries[j].ID() == id {
				return s.Holder, &s.Entries[j]
			}
		}
	}
	for i := range l.committed.Parked {
		if p := &l.committed.Parked[i]; !p.Retired && p.ID() == id {
			return types.Holder{}, &p.AssignmentEntry
		}
	}
	return types.Holder{}, nil
}

// progress returns what is to be said of an order that stands, where that is something new.
func (l *loop) progress(x paper, now time.Time, until func(time.Time)) (reply, bool) {
	r := reply{paper: x, ttl: controlAnswerTTL}
	switch x.Kind {
	case types.ControlDrain:
		r.ttl = controlDrainTTL
		_, there := l.view.Members[x.Worker]
		switch {
		case x.State == types.ControlAccepted && l.drained(x.Worker):
			r.State, r.Reason = types.ControlDone, "it owns nothing and runs nothing; it is given nothing until it is undrained"
			return r, true
		case x.State == types.ControlAccepted && now.Sub(x.stored) < 2*time.Second:
			until(now.Add(controlSoon))
		case x.State == types.ControlAccepted:
			until(now.Add(controlLater))
		}
		return r, there && now.Sub(x.stored) > controlDrainTTL/2
	case types.ControlEvictWorker:
		return r, l.evicted(&r, now, until)
	case types.ControlEvictPartition:
		if x.State == types.ControlDone {
			return r, false
		}
		return r, l.moved(&r)
	}
	return r, false
}

// drained reports whether the worker neither owns nor runs anything.
func (l *loop) drained(worker string) bool {
	slice := l.slice(worker)
	if slice != nil && len(slice.Entries) > 0 {
		return false
	}
	m, there := l.c.monitor.member(worker)
	return !there || m.State.Gone() && len(m.Unreturned) == 0 || m.AppliedVersion >= l.committed.Version && len(m.Unreturned) == 0
}

// evicted has the worker's key deleted, and reports whether the eviction is over: then it says so.
func (l *loop) evicted(r *reply, now time.Time, until func(time.Time)) bool {
	h := types.Holder{Worker: r.Worker, Incarnation: r.Incarnation}
	asked := l.roster.mandates.asked
	if m, there := l.c.monitor.member(r.Worker); there && m.Holder() == h && !m.State.Gone() {
		if now.Sub(asked[h]) > controlLater {
			asked[h] = now
			l.c.desk.end(h, m.Revision)
		}
		until(now.Add(controlLater + time.Millisecond))
		return false
	}
	if slice := l.slice(r.Worker); slice != nil && slice.Holder == h {
		return false
	}
	delete(asked, h)
	r.State = types.ControlDone
	r.Reason = fmt.Sprintf("its key is deleted and commit %d gives what it had to others; if it comes back, it joins anew", l.committed.Version)
	return true
}

// moved reports whether the partition is elsewhere: then it says so.
func (l *loop) moved(r *reply) bool {
	h := types.Holder{Worker: r.Worker, Incarnation: r.Incarnation}
	owner, entry := l.whereIs(r.Partition)
	if owner == h {
		return false
	}
	r.State = types.ControlDone
	switch {
	case entry == nil:
		r.Reason = "it has left the source"
	case owner.Worker == "":
		r.Reason = "it is parked"
	case slices.ContainsFunc(entry.From, func(f types.From) bool {
		return f.Holder == h && !l.c.monitor.Released(h, f.Version, r.Partition)
	}):
		r.Reason = fmt.Sprintf("commit %d gives it to %s, which starts as soon as %s has returned it, or after its HandoffTimeout; "+
			"if the handler hangs, evict the worker", l.committed.Version, owner.Worker, r.Worker)
	default:
		r.Reason = fmt.Sprintf("commit %d gives it to %s", l.committed.Version, owner.Worker)
	}
	return true
}
