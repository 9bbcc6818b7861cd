package assignment

import (
	"time"

	"github.com/partigo/parti/internal/backoff"
)

// firstSweep is how long a new leader that has nothing to commit waits before it looks for aliases that the one before left. A commit sweeps
// by itself.
const firstSweep = 5 * time.Second

// sweeps has aliases swept that a commit could not sweep, beside whatever else is done. It belongs to the loop.
type sweeps struct {
	running bool
	next    time.Time
	retry   *backoff.Backoff
	done    chan error // buffered
}

func newSweeps() sweeps {
	return sweeps{retry: backoff.New(firstJobRetry, lastJobRetry), done: make(chan error, 1)}
}

// sweep begins a sweep if one is due, or says when it will be.
func (l *loop) sweep(now time.Time, until func(time.Time)) {
	s := &l.sweeps
	if s.running || !l.cfg.Publisher.SweepDue() {
		return
	}
	if at := later(s.next, l.bootedAt.Add(firstSweep)); now.Before(at) {
		until(at)
		return
	}
	s.running = true
	l.wg.Go(func() { s.done <- l.cfg.Publisher.SweepAliases(l.ctx) })
}

// swept takes in what came of a sweep.
func (s *sweeps) swept(err error) {
	s.running = false
	if err == nil {
		s.retry.Reset()
		return
	}
	s.next = time.Now().Add(s.retry.Next())
}
