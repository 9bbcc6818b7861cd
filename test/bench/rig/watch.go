package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/partigo/parti/types"
)

// measured is the Metrics of one worker.
type measured struct {
	types.NopMetrics
	worker *Worker
}

// HeartbeatSent takes note of when the server heard of the worker last.
func (m measured) HeartbeatSent(took time.Duration, err error) {
	if err == nil {
		m.worker.beat.Store(time.Now().Add(-took).UnixNano())
	}
}

// PartitionsRunning takes note of how many partitions run, where there are no handlers to count.
func (m measured) PartitionsRunning(n int) { m.worker.owned.Store(int64(n)) }

// CommitApplied takes note of what the worker follows.
func (m measured) CommitApplied(version int64, _ int) {
	m.worker.applied.Store(time.Now().UnixNano())
	m.worker.version.Store(version)
}

// CommitPublished takes note of what a leader has made.
func (m measured) CommitPublished(version int64, took time.Duration, err error) {
	g := m.worker.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if !m.worker.over.Load() {
			g.errs = append(g.errs, err)
		}
		return
	}
	g.commits = append(g.commits, commit{version, time.Now().Add(-took), took})
}

// Commits returns how many commits were made so far.
func (g *Group) Commits() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.commits)
}

// LastCommit returns the newest commit that a leader made: its version, when the leader began to publish it, and when it knew
// that it had landed.
func (g *Group) LastCommit() (version int64, began, landed time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.commits) == 0 {
		return 0, time.Time{}, time.Time{}
	}
	c := g.commits[len(g.commits)-1]
	return c.version, c.began, c.began.Add(c.took)
}

// PublishError returns the errors of leaders that could not publish.
func (g *Group) PublishError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}

// Leader waits for a live worker that leads.
func (g *Group) Leader() (*Worker, error) {
	var leader *Worker
	err := Wait(Limit, "a leader", func() bool {
		for _, w := range g.Live() {
			if w.Manager.IsLeader() {
				leader = w
				return true
			}
		}
		return false
	})
	return leader, err
}

// Pick returns the leader, or a random follower.
func (g *Group) Pick(leading bool) (*Worker, error) {
	leader, err := g.Leader()
	if leading || err != nil {
		return leader, err
	}
	live := g.Live()
	for _, i := range rand.Perm(len(live)) {
		if live[i] != leader {
			return live[i], nil
		}
	}
	return nil, errors.New("there is no follower")
}

// WaitBalanced waits until every partition runs, every live worker runs its share, and all follow the same commit.
func (g *Group) WaitBalanced() error {
	live := g.Live()
	share := len(g.Ledger.cells) / len(live)
	return Wait(Limit, "a balanced group", func() bool {
		if g.Ledger.Idle() > 0 {
			return false
		}
		version, _ := live[0].Applied()
		for _, w := range live {
			if v, _ := w.Applied(); v != version || w.Running() < share || w.Running() > share+1 {
				return false
			}
		}
		return true
	})
}

// WaitShared waits until every live worker has its share assigned and all follow the same commit, and of the partitions that count each
// runs where it is assigned. The numbers of partitions are those of the ledger.
func (g *Group) WaitShared(counts func(partition int) bool) error {
	live := g.Live()
	share := len(g.Ledger.cells) / len(live)
	return Wait(Limit, "the partitions that count", func() bool {
		version, _ := live[0].Applied()
		for _, w := range slices.Backward(live) { // who joined last is ready last
			a := w.Manager.Assignment()
			if a.Version != version || len(a.Partitions) < share || len(a.Partitions) > share+1 {
				return false
			}
			for _, p := range a.Partitions {
				if n, err := place(p.Partition); err == nil && counts(n) && !w.Manager.Owns(p.Partition) {
					return false
				}
			}
		}
		return true
	})
}

// WaitApplied waits until every live worker has applied the version or a later one.
func (g *Group) WaitApplied(version int64) error {
	live := g.Live()
	return Wait(Limit, fmt.Sprintf("commit %d everywhere", version), func() bool {
		for _, w := range live {
			if v, _ := w.Applied(); v < version {
				return false
			}
		}
		return true
	})
}

// Owned returns how many partitions the live workers say they run. It is for workers without handlers.
func (g *Group) Owned() (n int) {
	for _, w := range g.Live() {
		n += int(w.owned.Load())
	}
	return n
}

// Wait waits until cond holds.
func Wait(limit time.Duration, what string, cond func() bool) error {
	deadline := time.Now().Add(limit)
	for !cond() {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain for %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// Traffic returns what went over the connections of all live workers so far, and of the leader alone.
func (g *Group) Traffic() (all, leader Traffic) {
	for _, w := range g.Live() {
		t := w.Link.Traffic()
		all = all.Plus(t)
		if w.Manager.IsLeader() {
			leader = leader.Plus(t)
		}
	}
	return all, leader
}
