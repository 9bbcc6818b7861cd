package assignment

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/types"
)

// errPanic marks the outcome of a job that panicked in this package's own code.
var errPanic = errors.New("assignment: panic")

// job is one piece of work for the store, done outside of the loop, one at a time. It is a bootstrap, or else it makes a commit of
// its input if there is anything to change.
type job struct {
	bootstrap bool
	scratch   bool // of a bootstrap: give up a commit that cannot be read

	reason     string
	seats      []seat
	committed  *plan.State
	source     sourceList
	generation int
	reissue    []types.Holder // the store lost commits
	seen       []int64        // versions seen elsewhere
	requests   []*request
}

// jobResult is what came of a job.
type jobResult struct {
	job
	// committed is the commit in force after the job, where err is nil.
	committed *plan.State
	published bool
	moved     int
	// asked: the strategy was to be asked; strategyErr is why its answer was not used.
	asked       bool
	strategyErr error
	err         error
	took        time.Duration
}

// do runs the job and always returns a result.
func (c *Calculator) do(ctx context.Context, j job) (r jobResult) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
		r.job, r.took = j, time.Since(start)
	}()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.PublishTimeout+c.cfg.StrategyTimeout)
	defer cancel()
	if j.bootstrap {
		r.committed, r.err = c.bootstrap(ctx, j.scratch)
		return r
	}
	c.rebalance(ctx, j, &r)
	return r
}

func (c *Calculator) bootstrap(ctx context.Context, scratch bool) (*plan.State, error) {
	s, err := c.cfg.Publisher.Bootstrap(ctx)
	if scratch && errors.Is(err, ErrCommitUnreadable) {
		return nil, c.cfg.Publisher.StartFromScratch()
	}
	return s, err
}

func (c *Calculator) rebalance(ctx context.Context, j job, r *jobResult) {
	r.committed = j.committed
	workers := make([]plan.Worker, len(j.seats))
	for i := range j.seats {
		workers[i] = j.seats[i].Worker
	}
	problem, err := plan.Prepare(plan.Input{
		Version:    c.cfg.Publisher.NextVersion(j.seen...),
		Partitions: j.source.partitions,
		Workers:    workers,
		Previous:   j.committed,
		Released:   c.monitor.Released,
		Reissue:    j.reissue,
	})
	if err != nil {
		r.err = err
		return
	}
	owners := c.owners(ctx, problem.Strategy, r)
	if r.err = ctx.Err(); r.err != nil {
		return
	}
	next, err := problem.Next(owners)
	if err != nil {
		r.err = err
		return
	}
	if !next.Changed || settleHeld(next.State, j) {
		return
	}
	_, err = c.cfg.Publisher.Publish(ctx, PublishInput{
		State:               next.State,
		Source:              j.source.partitions,
		SourceRevision:      j.source.revision,
		SourceRevisionKnown: j.source.revisioned,
		Lifecycle:           j.reason,
	})
	if err != nil {
		r.err = err
		return
	}
	r.committed, r.published, r.moved = next.State, true, next.Moved
}

// settleHeld gives the workers that are only held for a while the grace that the last commit says of them, and reports whether the
// state says nothing else than that commit then.
func settleHeld(next *plan.State, j job) (same bool) {
	before := make(map[string]*plan.Slice)
	if j.committed != nil {
		for i := range j.committed.Slices {
			before[j.committed.Slices[i].Worker] = &j.committed.Slices[i]
		}
	}
	held := 0
	for i := range j.seats { // the state lists them in the same order
		if j.seats[i].held {
			held++
			next.Slices[i].GraceUntil = before[j.seats[i].Worker.Worker].GraceUntil
		}
	}
	return held > 0 && len(j.reissue) == 0 &&
		reflect.DeepEqual(next.Slices, j.committed.Slices) && reflect.DeepEqual(next.Parked, j.committed.Parked)
}

// owners asks the strategy. Where its answer cannot be used, everything stays where it is and only what has no owner is placed.
func (c *Calculator) owners(ctx context.Context, in types.AssignmentInput, r *jobResult) []int {
	if len(in.Partitions) == 0 {
		return nil
	}
	r.asked = true
	owners, err := c.strategy.call(ctx, c.cfg.StrategyTimeout, func(ctx context.Context) ([]int, error) {
		return c.cfg.Strategy.Assign(ctx, cloneInput(in))
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", types.ErrStrategyFailed, err)
	default:
		err = plan.Validate(in, owners)
	}
	if err == nil {
		return owners
	}
	if ctx.Err() == nil {
		r.strategyErr = err
		c.cfg.Metrics.StrategyFailed(err)
	}
	return plan.Fallback(in)
}

// cloneInput makes a copy for foreign code, which may write to it, or go on reading it after it was given up.
func cloneInput(in types.AssignmentInput) types.AssignmentInput {
	return types.AssignmentInput{
		Workers:    slices.Clone(in.Workers),
		Partitions: slices.Clone(in.Partitions),
		Previous:   slices.Clone(in.Previous),
	}
}
