package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// result is what one event did, as the handlers told it.
type result struct {
	before  sight
	after   sight
	took    time.Duration // until the last partition ran where it belongs
	moved   int           // partitions that have another worker than before
	minimum int           // the least that any balanced assignment needs
	starts  int           // handlers that were started
	lost    time.Duration // until a worker whose lease ran out had ended its last handler; 0: none had to
}

// scene makes something happen and waits until every partition runs on one live worker, evenly.
func (g *group) scene(ctx context.Context, happen func() error) (r result, err error) {
	r.before, _ = g.ledger.look()
	began := time.Now()
	if err := happen(); err != nil {
		return r, err
	}
	if r.after, err = g.ledger.wait(ctx, g.settled); err != nil {
		return r, err
	}
	r.took = r.after.started.Sub(began)
	if r.after.lost.After(began) {
		r.lost = r.after.lost.Sub(began)
	}
	for partition, worker := range r.after.running {
		if r.before.running[partition] != worker {
			r.moved++
		}
	}
	r.minimum = g.minimum(r.before.running)
	r.starts = r.after.runs - r.before.runs
	return r, g.quiet(ctx, r.after)
}

// quiet gives the reader a moment, in which nothing may move.
func (g *group) quiet(ctx context.Context, settled sight) error {
	select {
	case <-time.After(1500 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s, _ := g.ledger.look(); s.runs != settled.runs || len(s.running) != partitionCount {
		return fmt.Errorf("something moved although nothing happened: %d partitions run", len(s.running))
	}
	return nil
}

// verdict returns the number of runs, and everything that went wrong. Everybody has stopped.
func (l *ledger) verdict() (runs int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.sight.running); n > 0 {
		l.faults = append(l.faults, fmt.Errorf("%d partitions still run", n))
	}
	return l.sight.runs, errors.Join(l.faults...)
}
