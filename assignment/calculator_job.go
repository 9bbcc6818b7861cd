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
	inPlace    bool                // keep everything where it is, and ask no strategy
	spilled    map[string]bool     // labels that nobody has carried for their grace
	orders     int                 // generation of the mandates
	banned     map[string][]string // by partition, workers that are not to have it
	// dead and left are the workers that the last commit lists and that have no seat, because they died, or left of their own will.
	dead, left []string
}

// jobResult is what came of a job.
type jobResult struct {
	job
	// committed is the commit in force after the job, where err is nil.
	committed *plan.State
	origin    sourceOrigin // of what a bootstrap found
	published bool
	moved     int
	gained    map[string]bool // workers for which others gave up partitions
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
		if last := c.cfg.Publisher.LastCommit(); last != nil {
			r.origin = sourceOrigin{last.SourceRevision, last.SourceRevisionKnown}
		}
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
		Barred:     j.banned,

		SharedUnlabeled: c.cfg.UnlabeledPolicy == types.UnlabeledShared,
		Spill:           func(label string) bool { return j.spilled[label] },
	})
	if err != nil {
		r.err = err
		return
	}
	answer := c.answer(ctx, problem, j, r)
	if r.err = ctx.Err(); r.err != nil {
		return
	}
	next, err := problem.NextOf(answer)
	if err != nil {
		r.err = err
		return
	}
	if !next.Changed || settleHeld(next.State, j) {
		return
	}
	aliases, tooLarge := c.aliases(next.State, j.seats)
	if len(tooLarge) > 0 {
		j.seats = c.bounded(j.seats, tooLarge, j.committed)
		c.rebalance(ctx, j, r)
		return
	}
	_, err = c.cfg.Publisher.Publish(ctx, PublishInput{
		State:               next.State,
		Source:              j.source.partitions,
		SourceRevision:      j.source.revision,
		SourceRevisionKnown: j.source.revisioned,
		Lifecycle:           j.reason,
		Extra:               aliases,
	})
	if err != nil {
		r.err = err
		return
	}
	r.committed, r.published, r.moved, r.gained = next.State, true, next.Moved, next.Gained
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

// answer asks the strategy about each pool. Where an answer cannot be used, everything stays where it is and only what has no owner is
// placed. All calls together have StrategyTimeout.
func (c *Calculator) answer(ctx context.Context, p *plan.Problem, j job, r *jobResult) plan.Answer {
	switch {
	case len(p.Strategy.Partitions) == 0:
		return plan.Answer{}
	case j.inPlace:
		return p.SolveFallback()
	}
	r.asked = true
	deadline := time.Now().Add(c.cfg.StrategyTimeout)
	answer, err := p.Solve(func(in types.AssignmentInput) ([]int, error) {
		owners, err := c.strategy.call(ctx, time.Until(deadline), func(ctx context.Context) ([]int, error) {
			return c.cfg.Strategy.Assign(ctx, cloneInput(in))
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", types.ErrStrategyFailed, err)
		}
		return owners, nil
	})
	if err == nil {
		return answer
	}
	if ctx.Err() == nil {
		r.strategyErr = err
		c.cfg.Metrics.StrategyFailed(err)
	}
	return p.SolveFallback()
}

// cloneInput makes a copy for foreign code, which may write to it, or go on reading it after it was given up.
func cloneInput(in types.AssignmentInput) types.AssignmentInput {
	workers := slices.Clone(in.Workers)
	for i := range workers {
		workers[i].Labels = slices.Clone(workers[i].Labels)
	}
	return types.AssignmentInput{Workers: workers, Partitions: clonePartitions(in.Partitions), Previous: slices.Clone(in.Previous)}
}

// clonePartitions returns copies that share no memory with ps, and one array of keys with each other.
func clonePartitions(ps []types.Partition) []types.Partition {
	n := 0
	for i := range ps {
		n += len(ps[i].Keys)
	}
	keys := make([]string, 0, n)
	out := slices.Clone(ps)
	for i := range out {
		first := len(keys)
		keys = append(keys, out[i].Keys...)
		out[i].Keys = keys[first:len(keys):len(keys)]
	}
	return out
}
