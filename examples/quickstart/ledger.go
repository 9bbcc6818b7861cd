package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/partigo/parti"
)

// ledger is told by the handlers what runs where. It knows nothing of the library's own opinion.
type ledger struct {
	mu     sync.Mutex
	sight  sight
	epochs map[string]int64 // the last one of each partition
	ended  map[string]time.Time
	faults []error
	news   chan struct{} // closed at the next start or end
}

// sight is what the handlers have told so far.
type sight struct {
	running map[string]string // partition → worker
	runs    int               // begun ever
	started time.Time         // the last start
	pause   time.Duration     // the longest that a partition was run by nobody, since the last look
	lost    time.Time         // the last end because of a lease
}

func newLedger() *ledger {
	return &ledger{
		sight:  sight{running: map[string]string{}},
		epochs: map[string]int64{}, ended: map[string]time.Time{}, news: make(chan struct{}),
	}
}

func (l *ledger) start(worker, partition string, epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, twice := l.sight.running[partition]; twice {
		l.faults = append(l.faults, fmt.Errorf("%s runs on %s and on %s", partition, other, worker))
	}
	if last := l.epochs[partition]; epoch <= last {
		l.faults = append(l.faults, fmt.Errorf("%s has epoch %d after %d", partition, epoch, last))
	}
	l.sight.running[partition], l.epochs[partition] = worker, epoch
	l.sight.runs, l.sight.started = l.sight.runs+1, time.Now()
	if before, ok := l.ended[partition]; ok {
		l.sight.pause = max(l.sight.pause, l.sight.started.Sub(before))
	}
	l.tell()
}

func (l *ledger) end(partition string, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sight.running, partition)
	l.ended[partition] = time.Now()
	if errors.Is(cause, parti.ErrLeaseExpired) {
		l.sight.lost = l.ended[partition]
	}
	l.tell()
}

// tell wakes whoever waits. Held: mu.
func (l *ledger) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// look returns a copy of what was told so far, and a channel that is closed when there is more.
func (l *ledger) look() (sight, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sight
	s.running = maps.Clone(s.running)
	l.sight.pause = 0
	return s, l.news
}

// wait returns as soon as cond holds. The pause it returns is the longest since it was called.
func (l *ledger) wait(ctx context.Context, cond func(sight) bool) (sight, error) {
	var pause time.Duration
	for {
		s, news := l.look()
		pause = max(pause, s.pause)
		if s.pause = pause; cond(s) {
			return s, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return s, fmt.Errorf("only %d of %d partitions run: %w", len(s.running), partitionCount, ctx.Err())
		}
	}
}
