package assignment

import (
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// finish takes in what came of a job. An error ends the calculator.
func (l *loop) finish(r jobResult) error {
	l.running = false
	l.c.sm.ReturnToIdle()
	if l.ctx.Err() != nil {
		return nil
	}
	if r.published || r.err != nil && !r.bootstrap {
		l.cfg.Metrics.Rebalanced(r.reason, r.took, r.moved, r.err)
	}
	if f := l.cfg.OnRebalanceEnded; f != nil && !r.bootstrap {
		in := r.committed
		if r.err != nil {
			in = l.committed
		}
		f(RebalanceResult{Reason: r.reason, Version: versionOf(in), Moved: r.moved, Took: r.took, Err: r.err})
	}
	if r.err != nil {
		return l.failed(r)
	}
	l.timing.retryAt = time.Time{}
	if !r.bootstrap || l.bootFailed { // else what failed before has yet to succeed
		l.err = nil
		l.retry.Reset()
	}
	if r.bootstrap {
		l.found(r)
		return nil
	}
	return l.decided(r)
}

// found takes over the commit that the store has.
func (l *loop) found(r jobResult) {
	l.committed, l.booted, l.bootedAt = r.committed, true, time.Now()
	l.unreadable, l.bootFailed = 0, false
	l.scratch = l.scratch || r.scratch && r.committed == nil
	l.takeover = l.committed != nil
	l.settled = nil
	l.source.adopt(l.committed, r.origin)
	l.countParked()
}

// decided takes over what a rebalance decided, whether that needed a commit or not.
func (l *loop) decided(r jobResult) error {
	now := time.Now()
	if r.published {
		owned := 0
		for i := range r.committed.Slices {
			owned += len(r.committed.Slices[i].Entries)
		}
		l.cfg.Logger.Info("assignment changed", "reason", r.reason, "version", r.committed.Version, "workers", len(r.committed.Slices),
			"partitions", owned, "parked", len(r.committed.Parked), "moved", r.moved, "took", r.took)
		if r.reason == types.LifecycleScale || r.reason == types.LifecycleColdStart {
			l.timing.lastJoins = now
		}
		l.scratch = false
		l.attempts.tell(l.cfg.OnPublish, nil)
		if len(r.reissue) > 0 {
			l.timing.lost.reissued(now)
		}
	}
	l.committed, l.takeover = r.committed, false
	l.settled, l.generation, l.orderly = r.seats, r.generation, r.orders
	l.roster.mandates.stepped(&r, now)
	l.profiles = make(map[types.Holder]profile, len(r.seats))
	for i := range r.seats {
		l.profiles[r.seats[i].Holder] = profileOf(&r.seats[i].Worker) // of one that was held: it was no target
	}
	l.timing.urgentSince, l.timing.windowSince = time.Time{}, time.Time{}
	l.countParked()
	l.restraint.decided(verdictOf(r.seats, r.dead, r.left, r.gained), now)
	l.pools.spilled = r.spilled
	l.pools.report(l.c, r.seats, l.committed)
	err := l.judgeStrategy(r, now)
	for _, q := range r.requests {
		q.done <- r.strategyErr
	}
	return err
}

// judgeStrategy counts failures in a row, and has the strategy asked again later.
func (l *loop) judgeStrategy(r jobResult, now time.Time) error {
	switch {
	case r.strategyErr == nil:
		if r.asked {
			l.failures, l.strategyErr = 0, nil
			l.strategyRetry.Reset()
		}
		l.strategyAt = time.Time{} // also where there was nothing to ask
		return nil
	case l.failures == 0:
		l.cfg.Logger.Error("strategy failed; partitions stay where they are, those of dead workers go to the least loaded", "error", r.strategyErr)
	}
	l.failures++
	l.strategyErr = r.strategyErr
	l.strategyAt = now.Add(l.strategyRetry.Next())
	if l.failures >= l.cfg.MaxStrategyFailures {
		return fmt.Errorf("the strategy failed %d times in a row: %w", l.failures, r.strategyErr)
	}
	return nil
}

// failed decides what an error means: the end, or another attempt on what the store has then.
func (l *loop) failed(r jobResult) error {
	if errors.Is(r.err, types.ErrCommitConflict) {
		l.requests = append(r.requests, l.requests...) // to be tried again on what the store has
	} else {
		l.answer(r)
	}
	switch {
	case errors.Is(r.err, errPanic), errors.Is(r.err, types.ErrLeadershipLost), errors.Is(r.err, types.ErrUnsupportedSchema):
		return r.err
	case errors.Is(r.err, ErrCommitUnreadable):
		l.unreadable++
	case errors.Is(r.err, types.ErrCommitConflict): // not a failure: somebody else wrote, or what was read was old
	case trouble(r.err):
		l.roster.recovery.trouble(time.Now())
	}
	wait := l.retry.Next()
	l.cfg.Logger.Warn("no commit made", "reason", r.reason, "error", r.err, "again_in", wait.Round(time.Millisecond))
	l.err, l.bootFailed = r.err, r.bootstrap
	l.booted = false // the attempt may have landed all the same
	l.timing.retryAt = time.Now().Add(wait)
	l.attempts.tell(l.cfg.OnPublish, r.err)
	return nil
}

// needless ends a row of failed attempts where there is nothing to commit. What is held back for now is still to come, so it ends nothing.
func (l *loop) needless(s *sitting) {
	if l.attempts.failed > 0 && s.held == 0 && l.source.deferred == nil {
		l.attempts.tell(l.cfg.OnPublish, nil)
	}
}

// trouble reports whether the error says that the store was out of reach.
func trouble(err error) bool {
	return kv.IsTimeout(err) || kv.IsUnknown(err) || errors.Is(err, kv.ErrUnavailable) || errors.Is(err, types.ErrPartialListing)
}

func (l *loop) answer(r jobResult) {
	for _, q := range r.requests {
		q.done <- r.err
	}
}

func (l *loop) countParked() {
	l.parked, l.parkedLabels = 0, make(map[string]bool)
	if l.committed == nil {
		return
	}
	for i := range l.committed.Parked {
		if e := &l.committed.Parked[i]; !e.Retired {
			l.parked++
			l.parkedLabels[e.Label] = true
		}
	}
	l.cfg.Metrics.PartitionsParked(l.parked)
}

// counts reports the workers seen.
func (l *loop) counts(s *sitting) {
	if s.live != l.live {
		l.cfg.Metrics.WorkersSeen(s.live)
	}
	l.live, l.legacy, l.held = s.live, s.legacy, s.held
}

func (l *loop) status() *CalculatorStatus {
	s := &CalculatorStatus{
		Version:          versionOf(l.committed),
		Workers:          l.live,
		Legacy:           l.legacy,
		Held:             l.held,
		Partitions:       len(l.source.list.partitions),
		Parked:           l.parked,
		Behind:           l.audits.behind,
		Damped:           l.heldBack,
		StandingBy:       l.standby,
		SourceSuspicious: l.source.shrink.Suspicious() || l.source.seen.looks > 0,
		StrategyFailures: l.failures,
		RecoveryUntil:    l.roster.recovery.until(time.Now()),
		LastError:        l.err,
	}
	if s.LastError == nil {
		s.LastError = errors.Join(l.source.err, l.strategyErr)
	}
	return s
}

// complain tells the owner of a failure that is another one than the last time.
func (l *loop) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != l.complaint && err != nil && l.cfg.OnTrouble != nil {
		l.cfg.OnTrouble(err)
	}
	l.complaint = text
}

func versionOf(s *plan.State) int64 {
	if s == nil {
		return 0
	}
	return s.Version
}
