package strategytest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// patience is how long a single call of Assign may take on the small inputs of the suite.
const patience = 10 * time.Second

// Option adds a check of something that not every strategy promises.
type Option func(*suite)

// MaxSpread checks that, where all partitions cost the same, no worker has over n partitions more than another.
func MaxSpread(n int) Option { return func(s *suite) { s.spread = &n } }

// MinimalMovement checks that, where all partitions cost the same, no more of them move than [strategy.MinimumMoves].
func MinimalMovement() Option { return func(s *suite) { s.minimal = true } }

// Balance checks that the cost of the busiest worker is at most ratio times the mean, rounded up, or at most one partition
// (the heaviest) over the mean where that is more.
func Balance(ratio float64) Option { return func(s *suite) { s.ratio = ratio } }

// Stable checks that a result, given as Previous, is left as it is.
func Stable() Option { return func(s *suite) { s.stable = true } }

// Run checks s, one subtest for each input. Calls of s do not overlap, unless one hangs. A strategy or an option that is nil ends the test.
func Run(t *testing.T, s types.AssignmentStrategy, opts ...Option) {
	if t == nil {
		panic("strategytest: Run(nil, …): pass the *testing.T of the test that calls it")
	}
	t.Helper()
	if fault := missing(s, opts); fault != "" {
		t.Fatal(fault)
	}
	run(func(name string, check func(reporter)) {
		t.Run(name, func(t *testing.T) { check(t) })
	}, s, patience, opts...)
}

// missing says which argument is nil, "" where none is. A nil pointer is a strategy that NewManager refuses.
func missing(s types.AssignmentStrategy, opts []Option) string {
	if s == nil {
		return "strategytest: the strategy is nil: pass the one to be checked, e.g. mine.New()"
	}
	if v := reflect.ValueOf(s); (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
		return fmt.Sprintf("strategytest: the strategy is a nil %T: pass a value that was made", s)
	}
	if i := slices.IndexFunc(opts, func(o Option) bool { return o == nil }); i >= 0 {
		return fmt.Sprintf("strategytest: option %d is nil: leave it out", i+1)
	}
	return ""
}

// reporter is the part of testing.T that checks need, so that the suite can be tested for what it finds.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

type suite struct {
	strategy types.AssignmentStrategy
	patience time.Duration
	spread   *int
	minimal  bool
	stable   bool
	ratio    float64
}

func run(subtest func(name string, check func(reporter)), s types.AssignmentStrategy, patience time.Duration, opts ...Option) {
	su := &suite{strategy: s, patience: patience}
	for _, o := range opts {
		o(su)
	}
	for _, sc := range scenarios() {
		subtest(sc.name, func(t reporter) { su.scenario(t, sc) })
	}
	subtest("ended context", su.endedContext)
}

func (su *suite) scenario(t reporter, sc scenario) {
	t.Helper()
	in := sc.in
	if sc.after != nil {
		first, ok := su.assign(t, in)
		if !ok {
			return
		}
		in.Previous = first
		in = sc.after(in)
	}
	result, ok := su.assign(t, in)
	if !ok {
		return
	}
	su.repeatable(t, in, result)
	su.promises(t, in, result)
	if su.stable {
		again := clone(in)
		again.Previous = slices.Clone(result)
		if second, ok := su.assign(t, again); ok && !slices.Equal(second, result) {
			t.Errorf("its own result as Previous is not left as it is: %d partitions move", strategy.Moves(again, second))
		}
	}
}

// assign calls the strategy and checks what is checked of every call. It is false if there is no usable result.
func (su *suite) assign(t reporter, in types.AssignmentInput) ([]int, bool) {
	t.Helper()
	passed, kept := clone(in), clone(in)
	result, err := su.call(context.Background(), passed)
	if err != nil {
		t.Errorf("Assign: %v", err)
		return nil, false
	}
	if !same(passed, kept) {
		t.Errorf("Assign changed its input, which is read-only")
	}
	return result, valid(t, in, result)
}

func valid(t reporter, in types.AssignmentInput, result []int) bool {
	t.Helper()
	if len(result) != len(in.Partitions) {
		t.Errorf("%d elements for %d partitions: return one for each", len(result), len(in.Partitions))
		return false
	}
	for i, w := range result {
		if w < 0 || w >= len(in.Workers) {
			t.Errorf("partition %d is given to worker %d; there are workers 0 to %d", i, w, len(in.Workers)-1)
			return false
		}
	}
	return true
}

var errHangs = errors.New("no return in time")

// call runs Assign apart, so that a panic or a call without end is a finding like any other. One that never returns keeps
// its goroutine.
func (su *suite) call(ctx context.Context, in types.AssignmentInput) ([]int, error) {
	type answer struct {
		result []int
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				answers <- answer{err: fmt.Errorf("panic: %v", p)}
			}
		}()
		result, err := su.strategy.Assign(ctx, in)
		answers <- answer{result, err}
	}()
	timer := time.NewTimer(su.patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-timer.C:
		return nil, fmt.Errorf("%w (%v)", errHangs, su.patience)
	}
}

// repeatable checks that neither another call, nor another order of arrival, nor other addresses in memory change the result.
func (su *suite) repeatable(t reporter, in types.AssignmentInput, result []int) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	previous := map[string]string{}
	for i, w := range in.Previous {
		if w >= 0 {
			previous[in.Partitions[i].ID()] = in.Workers[w].ID
		}
	}
	for range 3 {
		other := clone(in)
		r.Shuffle(len(other.Workers), reflect.Swapper(other.Workers))
		r.Shuffle(len(other.Partitions), reflect.Swapper(other.Partitions))
		again, ok := su.assign(t, Input(other.Workers, other.Partitions, previous))
		if !ok {
			return
		}
		if !slices.Equal(again, result) {
			t.Errorf("the same input gives different results: an assignment must depend on nothing but its input")
			return
		}
	}
}

// promises checks what the options ask for.
func (su *suite) promises(t reporter, in types.AssignmentInput, result []int) {
	t.Helper()
	count, cost := load(in, result)
	equal := !slices.ContainsFunc(in.Partitions, func(p types.Partition) bool { return p.Cost() != in.Partitions[0].Cost() })
	if spread := slices.Max(count) - slices.Min(count); equal && su.spread != nil && spread > *su.spread {
		t.Errorf("spread %d: a worker has %d partitions, another %d; promised is a spread ≤ %d",
			spread, slices.Max(count), slices.Min(count), *su.spread)
	}
	if moves, least := strategy.Moves(in, result), strategy.MinimumMoves(in); equal && su.minimal && moves > least {
		t.Errorf("%d partitions move; %d are enough for a spread ≤ 1", moves, least)
	}
	if su.ratio > 0 {
		var total, heaviest float64
		for _, p := range in.Partitions {
			total += float64(p.Cost())
			heaviest = max(heaviest, float64(p.Cost()))
		}
		mean := total / float64(len(in.Workers))
		if most := slices.Max(cost); most > max(math.Ceil(su.ratio*mean), mean+heaviest) {
			t.Errorf("the busiest worker has %.0f, which is %.3f × the mean %.1f; promised is %.3f, the heaviest partition is %.0f",
				most, most/mean, mean, su.ratio, heaviest)
		}
	}
}

// endedContext checks that an answer comes at once: a valid one or an error.
func (su *suite) endedContext(t reporter) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	in := Input(workers(20), partitions(2000, 3, nil), nil)
	switch result, err := su.call(ctx, in); {
	case errors.Is(err, context.Canceled):
	case err != nil:
		t.Errorf("Assign with an ended context: %v; return ctx.Err(), or a result", err)
	default:
		valid(t, in, result)
	}
}
