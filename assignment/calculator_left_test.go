package assignment

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// hangs is user code that returns only when it is let go.
type hangs struct {
	*testSource
	under, calls atomic.Int64
	release      chan struct{}
}

func (h *hangs) hang(context.Context) error {
	h.calls.Add(1)
	h.under.Add(1)
	defer h.under.Add(-1)
	<-h.release
	return nil
}

// watchHangs is a source whose Watch hangs.
type watchHangs struct{ *hangs }

func (w watchHangs) Watch(ctx context.Context) (<-chan struct{}, error) {
	_ = w.hang(ctx)
	return w.testSource.Watch(ctx)
}

// A process that leads again and again, and whose source or strategy never returns, leaves four calls of a kind behind. What comes after them fails
// at once, until one of them has returned.
func TestCallsLeftBehindAreBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		hang func(*Config, *hangs)
		told string // how it is told
	}{
		{"source", func(_ *Config, h *hangs) { h.behave(h.hang) }, "partition source"},
		{"watch", func(cfg *Config, h *hangs) { cfg.Source = watchHangs{h} }, ""},
		{"strategy", func(cfg *Config, h *hangs) {
			cfg.Strategy = types.StrategyFunc(func(ctx context.Context, in types.AssignmentInput) ([]int, error) {
				_ = h.hang(ctx)
				return strategy.Sticky().Assign(ctx, in)
			})
		}, "strategy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				e := newCalcEnv(t, env)
				h, left := &hangs{testSource: e.source, release: make(chan struct{})}, new(LeftBehind)
				e.fleet.join("a")
				term := func() {
					e.start(func(cfg *Config) {
						cfg.LeftBehind = left
						c.hang(cfg, h)
					})
					time.Sleep(15 * time.Second)
				}
				for n := range mostLeft + 4 {
					term()
					require.EqualValues(t, min(n+1, mostLeft), h.under.Load())
					require.Equal(t, min(n+1, mostLeft), e.calc.Status().HungCalls)
				}
				require.EqualValues(t, mostLeft, h.calls.Load())
				if c.told != "" {
					require.ErrorIs(t, e.calc.Status().LastError, errLeft)
					require.ErrorContains(t, e.calc.Status().LastError, c.told)
				}
				close(h.release)
				term()
				require.Zero(t, e.calc.Status().HungCalls)
				require.NoError(t, e.calc.Status().LastError)
				require.Greater(t, h.calls.Load(), int64(mostLeft), "it is called again")
			})
		})
	}
}
