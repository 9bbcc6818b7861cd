package checker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Commit describes one commit seen.
type Commit struct {
	Version   int64
	Revision  uint64
	Term      uint64
	Leader    Holder
	At        time.Time // when the server stored it, on its clock
	Lifecycle string

	Workers    int
	Partitions int // assigned and parked
	Parked     int
	Retired    int
	// Moved is the number of partitions that changed their worker: those that had one before and have another now.
	Moved int
	// Least is the number of moves without which no even spread by count was possible, over the workers listed that may be given
	// partitions. It knows neither weights nor labels.
	Least int
	// Reissued: every entry has a new epoch, since the store had lost a commit.
	Reissued bool
	// Judged is false where what the commit refers to could not be read: then the numbers from Parked to Least are not known.
	Judged bool
}

// Entry is one partition under a commit.
type Entry struct {
	Owner   Holder // zero where it is parked
	Epoch   int64
	From    []Item
	Retired bool
}

func (m *model) describe(e event, c commit, v *view, reissue bool) Commit {
	d := Commit{
		Version: c.Version, Revision: e.rev, Term: c.LeaderRevision, Leader: c.TermHolder, At: e.at, Lifecycle: c.Lifecycle,
		Workers: c.Workers, Partitions: c.Partitions, Reissued: reissue,
	}
	if v == nil {
		return d
	}
	d.Judged, d.Parked, d.Retired = true, v.parked, v.retired
	if m.now != nil {
		d.Moved, d.Least = m.moves(e.at, v)
	}
	return d
}

// moves returns how many partitions moved, and how many had to.
func (m *model) moves(at time.Time, v *view) (moved, least int) {
	staying := map[string]int{} // partitions that could stay, by worker
	for _, r := range v.refs {
		if r.GraceUntil > 0 || m.targetFault(r.holder(), at.Add(2*time.Second)) == "" {
			staying[r.Worker] = 0
		}
	}
	owned, had := 0, 0
	for id, p := range v.slots {
		if !p.owned {
			continue
		}
		owned++
		q := m.now.slots[id]
		if !q.owned {
			continue
		}
		had++
		if q.owner.Worker != p.owner.Worker {
			moved++
		}
		if n, ok := staying[q.owner.Worker]; ok {
			staying[q.owner.Worker] = n + 1
		}
	}
	if len(staying) == 0 {
		return moved, 0
	}
	counts := slices.SortedFunc(maps.Values(staying), func(a, b int) int { return cmp.Compare(b, a) })
	share, more := owned/len(counts), owned%len(counts)
	stay := 0
	for i, n := range counts {
		quota := share
		if i < more {
			quota++
		}
		stay += min(n, quota)
	}
	return moved, had - stay
}

// publish makes a commit known to the test.
func (c *Checker) publish(d Commit, v *view, reissue bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, d)
	c.last = v
	if reissue {
		c.lossUntil = false
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Commits returns every commit seen, in order.
func (c *Checker) Commits() []Commit {
	c.Sync()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history)
}

// LastCommit returns the last commit seen; false before the first.
func (c *Checker) LastCommit() (Commit, bool) {
	all := c.Commits()
	if len(all) == 0 {
		return Commit{}, false
	}
	return all[len(all)-1], true
}

// Owners returns the worker of each assigned partition under the last commit.
func (c *Checker) Owners() map[string]string {
	owners := map[string]string{}
	c.each(func(id string, p part) {
		if p.owned {
			owners[id] = p.owner.Worker
		}
	})
	return owners
}

// Entries returns all that the last commit says about partitions, the parked and retired ones among them.
func (c *Checker) Entries() map[string]Entry {
	entries := map[string]Entry{}
	c.each(func(id string, p part) {
		entries[id] = Entry{Owner: p.owner, Epoch: p.epoch, From: slices.Clone(p.from), Retired: p.retired}
	})
	return entries
}

func (c *Checker) each(f func(id string, p part)) {
	c.Sync()
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last != nil {
		for id, p := range last.slots {
			f(id, p)
		}
	}
}

// Wait returns the first commit seen, the last one so far included, for which cond holds. cond is called with one commit at a time.
func (c *Checker) Wait(ctx context.Context, cond func(Commit) bool) (Commit, error) {
	next := -1
	for {
		c.mu.Lock()
		if next < 0 {
			next = max(0, len(c.history)-1)
		}
		fresh := slices.Clone(c.history[next:])
		changed := c.changed
		c.mu.Unlock()
		for _, d := range fresh {
			if cond(d) {
				return d, nil
			}
		}
		next += len(fresh)
		select {
		case <-changed:
		case <-c.done:
			return Commit{}, fmt.Errorf("checker: detached after %d commits", next)
		case <-ctx.Done():
			return Commit{}, fmt.Errorf("checker: %d commits seen, none as expected: %w", next, ctx.Err())
		}
	}
}

// WaitVersion returns the first commit seen, the last one so far included, of at least that version.
func (c *Checker) WaitVersion(ctx context.Context, version int64) (Commit, error) {
	return c.Wait(ctx, func(d Commit) bool { return d.Version >= version })
}
