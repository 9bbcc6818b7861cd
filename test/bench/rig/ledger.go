package rig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger knows which partitions run where, from the handlers alone. Partitions are numbered.
type Ledger struct {
	cells []cell
	idle  atomic.Int64  // partitions that nobody runs
	full  chan struct{} // idle became 0; holds one

	mu     sync.Mutex // guards what follows; taken under a cell's lock
	fullAt time.Time  // when idle became 0 last
	gaps   []Gap
	totals Totals
}

// cell is one partition.
type cell struct {
	mu   sync.Mutex
	runs []ledgerRun
	last time.Time // when runs changed last
}

type ledgerRun struct {
	worker *Worker
	epoch  int64
}

// Gap is a time in which nobody ran a partition, ended by a start.
type Gap struct {
	Partition int
	Length    time.Duration
}

// Totals are sums over all partitions.
type Totals struct {
	Twice, None time.Duration // run by two at once; run by nobody
	Starts      int
}

// NewLedger returns a ledger of n partitions that nobody runs.
func NewLedger(n int) *Ledger {
	l := &Ledger{cells: make([]cell, n), full: make(chan struct{}, 1)}
	now := time.Now()
	for i := range l.cells {
		l.cells[i].last = now
	}
	l.idle.Store(int64(n))
	return l
}

// account closes the time since the cell changed last and returns its length. Held: c.mu.
func (l *Ledger) account(c *cell, now time.Time) time.Duration {
	d := now.Sub(c.last)
	c.last = now
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := len(c.runs); n {
	case 0:
		l.totals.None += d
	case 1:
	default:
		l.totals.Twice += d * time.Duration(n-1)
	}
	return d
}

func (l *Ledger) start(partition int, w *Worker, epoch int64) {
	c := &l.cells[partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.dead.Load() {
		return
	}
	now := time.Now()
	d := l.account(c, now)
	c.runs = append(c.runs, ledgerRun{w, epoch})
	w.running.Add(1)
	first := len(c.runs) == 1
	l.mu.Lock()
	l.totals.Starts++
	if first {
		l.gaps = append(l.gaps, Gap{partition, d})
		if l.idle.Add(-1) == 0 {
			l.fullAt = now
			select {
			case l.full <- struct{}{}:
			default:
			}
		}
	}
	l.mu.Unlock()
}

func (l *Ledger) end(partition int, w *Worker, epoch int64) {
	c := &l.cells[partition]
	c.mu.Lock()
	defer c.mu.Unlock()
	l.remove(c, func(r ledgerRun) bool { return r == ledgerRun{w, epoch} })
}

// remove takes a run out of the cell, if there is one that fits. Held: c.mu.
func (l *Ledger) remove(c *cell, fits func(ledgerRun) bool) {
	i := slices.IndexFunc(c.runs, fits)
	if i < 0 {
		return
	}
	l.account(c, time.Now())
	c.runs[i].worker.running.Add(-1)
	if c.runs = slices.Delete(c.runs, i, i+1); len(c.runs) == 0 {
		l.idle.Add(1)
	}
}

// killed ends everything that a worker ran. Nothing it does afterwards counts.
func (l *Ledger) killed(w *Worker) {
	w.dead.Store(true)
	for i := range l.cells {
		c := &l.cells[i]
		c.mu.Lock()
		l.remove(c, func(r ledgerRun) bool { return r.worker == w })
		c.mu.Unlock()
	}
}

// Idle returns how many partitions nobody runs.
func (l *Ledger) Idle() int { return int(l.idle.Load()) }

// WaitFull waits until every partition runs, and returns when the last one of them started. It is for one waiter at a time.
func (l *Ledger) WaitFull(limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for l.idle.Load() != 0 {
		select {
		case <-l.full:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("after %v %d of %d partitions do not run", limit, l.Idle(), len(l.cells))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fullAt, nil
}

// Reset makes gaps and totals count from now on.
func (l *Ledger) Reset() {
	l.settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps, l.totals = nil, Totals{}
}

// settle accounts for what goes on.
func (l *Ledger) settle() {
	now := time.Now()
	for i := range l.cells {
		c := &l.cells[i]
		c.mu.Lock()
		l.account(c, now)
		c.mu.Unlock()
	}
}

// Totals returns the sums since Reset, up to now.
func (l *Ledger) Totals() Totals {
	l.settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals
}

// Gaps returns the gaps that ended since Reset.
func (l *Ledger) Gaps() []Gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.gaps)
}
