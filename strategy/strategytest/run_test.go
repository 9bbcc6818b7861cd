package strategytest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// recorder takes down what a suite reports.
type recorder struct {
	name     string
	findings []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.findings = append(r.findings, r.name+": "+fmt.Sprintf(format, args...))
}

func record(s types.AssignmentStrategy, patience time.Duration, opts ...Option) []string {
	var r recorder
	run(func(name string, check func(reporter)) {
		r.name = name
		check(&r)
	}, s, patience, opts...)
	return r.findings
}

func TestRunFindsNothingWrongWithAGoodStrategy(t *testing.T) {
	Run(t, strategy.Sticky(), MaxSpread(1), MinimalMovement(), Balance(1.05), Stable())
}

// broken is round robin with a fault.
func broken(fault func(ctx context.Context, in types.AssignmentInput, out []int) ([]int, error)) types.AssignmentStrategy {
	return types.StrategyFunc(func(ctx context.Context, in types.AssignmentInput) ([]int, error) {
		out := make([]int, len(in.Partitions))
		for i := range out {
			out[i] = i % len(in.Workers)
		}
		return fault(ctx, in, out)
	})
}

func TestRunFindsEachFault(t *testing.T) {
	var calls atomic.Int64
	release := make(chan struct{})
	defer close(release)
	for name, c := range map[string]struct {
		fault func(ctx context.Context, in types.AssignmentInput, out []int) ([]int, error)
		opts  []Option
		want  string // part of a finding
	}{
		"too few": {want: "elements for", fault: func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) {
			return out[:len(out)/2], nil
		}},
		"nil": {want: "elements for", fault: func(context.Context, types.AssignmentInput, []int) ([]int, error) {
			return nil, nil
		}},
		"out of range": {want: "is given to worker", fault: func(_ context.Context, in types.AssignmentInput, out []int) ([]int, error) {
			for i := range out {
				out[i] = len(in.Workers)
			}
			return out, nil
		}},
		"nobody": {want: "is given to worker -1", fault: func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) {
			for i := range out {
				out[i] = types.NoOwner
			}
			return out, nil
		}},
		"not deterministic": {want: "different results", fault: func(_ context.Context, in types.AssignmentInput, out []int) ([]int, error) {
			n := int(calls.Add(1))
			for i := range out {
				out[i] = (i + n) % len(in.Workers)
			}
			return out, nil
		}},
		"changes partitions": {want: "changed its input", fault: func(_ context.Context, in types.AssignmentInput, out []int) ([]int, error) {
			for i := range in.Partitions {
				in.Partitions[i].Weight++
			}
			return out, nil
		}},
		"changes previous": {want: "changed its input", fault: func(_ context.Context, in types.AssignmentInput, out []int) ([]int, error) {
			copy(in.Previous, out)
			return out, nil
		}},
		"panics": {want: "panic: oops", fault: func(context.Context, types.AssignmentInput, []int) ([]int, error) {
			panic("oops")
		}},
		"fails": {want: "out of luck", fault: func(context.Context, types.AssignmentInput, []int) ([]int, error) {
			return nil, fmt.Errorf("out of luck")
		}},
		"hangs once the context has ended": {want: "ended context: Assign with an ended context: no return in time",
			fault: func(ctx context.Context, _ types.AssignmentInput, out []int) ([]int, error) {
				if ctx.Err() != nil {
					<-release
				}
				return out, nil
			}},
		"spread": {want: "promised is a spread ≤ 1", opts: []Option{MaxSpread(1)},
			fault: func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) {
				clear(out)
				return out, nil
			}},
		"balance": {want: "promised is 1.300", opts: []Option{Balance(1.3)},
			fault: func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) {
				clear(out)
				return out, nil
			}},
		"movement": {want: "are enough for a spread ≤ 1", opts: []Option{MinimalMovement()},
			fault: func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) { return out, nil }},
		"restless": {want: "not left as it is", opts: []Option{Stable()},
			fault: func(_ context.Context, in types.AssignmentInput, out []int) ([]int, error) {
				for i, w := range in.Previous {
					out[i] = (w + 1) % len(in.Workers)
				}
				return out, nil
			}},
	} {
		t.Run(name, func(t *testing.T) {
			wait := patience
			if strings.HasPrefix(name, "hangs") {
				wait = 50 * time.Millisecond // other inputs may run into it too on a busy machine; it is no matter
			}
			require.Contains(t, strings.Join(record(broken(c.fault), wait, c.opts...), "\n"), c.want)
		})
	}
}

func TestRunAsksForNoMoreThanTheContract(t *testing.T) {
	require.Empty(t, record(broken(func(_ context.Context, _ types.AssignmentInput, out []int) ([]int, error) { return out, nil }), patience))
}

func TestInputSortsAndAligns(t *testing.T) {
	ws := []types.Worker{{ID: "b"}, {ID: "a"}}
	ps := []types.Partition{types.NewPartition("y"), types.NewPartition("x"), types.NewPartition("z")}
	in := Input(ws, ps, map[string]string{"x": "b", "y": "gone", "z": "a"})
	require.Equal(t, []types.Worker{{ID: "a"}, {ID: "b"}}, in.Workers)
	require.Equal(t, "x", in.Partitions[0].ID())
	require.Equal(t, []int{1, types.NoOwner, 0}, in.Previous)
	require.Equal(t, "b", ws[0].ID, "the arguments are left alone")
	require.Equal(t, map[string]string{"x": "b", "y": "a", "z": "a"}, Owners(in, []int{1, 0, 0}))
	require.Equal(t, map[string]string{"x": "b", "z": "a"}, Owners(in, in.Previous), "the inverse")
}

// hollow is a strategy whose method could be called on a nil pointer.
type hollow struct{}

func (*hollow) Assign(context.Context, types.AssignmentInput) ([]int, error) { return nil, nil }

const nilCase = "STRATEGYTEST_NIL_CASE"

// TestNilArguments runs each case in a process of its own, since it is to fail there.
func TestNilArguments(t *testing.T) {
	cases := map[string]struct {
		run  func(*testing.T)
		says string
	}{
		"strategy": {func(t *testing.T) { Run(t, nil) }, "strategytest: the strategy is nil: pass the one to be checked"},
		"pointer":  {func(t *testing.T) { Run(t, (*hollow)(nil)) }, "strategytest: the strategy is a nil *strategytest.hollow"},
		"function": {func(t *testing.T) { Run(t, types.StrategyFunc(nil)) }, "strategytest: the strategy is a nil types.StrategyFunc"},
		"option":   {func(t *testing.T) { Run(t, strategy.Sticky(), Stable(), nil) }, "strategytest: option 2 is nil: leave it out"},
		"test": {func(t *testing.T) {
			defer func() { t.Fatal(recover()) }()
			Run(nil, strategy.Sticky())
		}, "strategytest: Run(nil, …): pass the *testing.T of the test that calls it"},
	}
	if name := os.Getenv(nilCase); name != "" {
		cases[name].run(t)
		return
	}
	for name, c := range cases {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNilArguments$")
		cmd.Env = append(os.Environ(), nilCase+"="+name)
		out, err := cmd.CombinedOutput()
		require.Error(t, err, name)
		require.Contains(t, string(out), c.says, name)
		require.NotContains(t, string(out), "panic", name)
		require.Equal(t, 1, strings.Count(string(out), "--- FAIL"), "%s: one clear message: %s", name, out)
	}
}
