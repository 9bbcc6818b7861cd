package integration

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A Manager leaves nothing on the connection of its user.
func TestStopLeavesNoSubscription(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, parti.DefaultConfig().Namespace)
		c := env.Connect("w")
		before := 0
		for life := range 3 {
			m, err := parti.NewManager(c.JS(), source.Static(types.NewPartition("a")), strategy.Sticky())
			require.NoError(t, err)
			require.NoError(t, m.Start(t.Context()))
			require.NoError(t, m.WaitReady(t.Context()))
			require.NoError(t, m.Stop(context.Background()))
			if life == 0 {
				before = c.Conn().NumSubscriptions() // the client's own, for answers
				require.LessOrEqual(t, before, 1)
			}
			require.Equal(t, before, c.Conn().NumSubscriptions())
		}
	})
}

// asking is a logger's handler and a metrics sink that look at the Manager that calls them.
type asking struct {
	types.NopMetrics
	m *atomic.Pointer[parti.Manager]
}

func (a asking) look() {
	if m := a.m.Load(); m != nil {
		m.Status()
		m.State()
	}
}
func (a asking) Enabled(context.Context, slog.Level) bool  { return true }
func (a asking) Handle(context.Context, slog.Record) error { a.look(); return nil }
func (a asking) WithAttrs([]slog.Attr) slog.Handler        { return a }
func (a asking) WithGroup(string) slog.Handler             { return a }
func (a asking) StateChanged(types.State, types.State)     { a.look() }
func (a asking) LeaderChanged(bool)                        { a.look() }
func (a asking) HeartbeatSent(time.Duration, error)        { a.look() }
func (a asking) CommitApplied(int64, int)                  { a.look() }
func (a asking) PartitionsRunning(int)                     { a.look() }

// Metrics and log handlers may ask the Manager how it is.
func TestWhoIsToldMayAsk(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, parti.DefaultConfig().Namespace)
		a := asking{m: &atomic.Pointer[parti.Manager]{}}
		m, err := parti.NewManager(env.Connect("w").JS(), source.Static(types.NewPartition("a")), strategy.Sticky(),
			parti.WithLogger(slog.New(a)), parti.WithMetrics(a))
		require.NoError(t, err)
		a.m.Store(m)
		changes, _ := m.Subscribe()
		require.NoError(t, m.Start(t.Context()))
		require.NoError(t, m.WaitReady(t.Context()))
		require.NoError(t, m.Stop(context.Background()))
		var last parti.StateChange
		for c := range changes {
			require.Equal(t, last.To, c.From, "in order, none missing")
			last = c
		}
		require.Equal(t, parti.StateStopped, last.To)
	})
}

// Failures of user code are shown where users look, and errors.Is says whose they are.
func TestFailuresOfUserCodeAreTold(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, parti.DefaultConfig().Namespace)
		down := errors.New("the database is down")
		run := func(name string, src types.PartitionSource, s types.AssignmentStrategy, handler parti.Handler, wants ...error) {
			var told atomic.Pointer[error]
			m, err := parti.NewManager(env.Connect("w").JS(), src, s, parti.WithNamespace(name), parti.WithHandler(handler),
				parti.WithHooks(parti.Hooks{OnError: func(err error) { told.Store(&err) }}))
			require.NoError(t, err)
			require.NoError(t, m.Start(t.Context()))
			time.Sleep(20 * time.Second)
			require.NotNil(t, told.Load(), name)
			for _, want := range wants {
				require.ErrorIs(t, m.Status().LastError, want, name)
				require.ErrorIs(t, *told.Load(), want, name)
			}
			require.NoError(t, m.Stop(context.Background()))
		}
		works := source.Static(types.NewPartition("a"))
		idle := func(ctx context.Context, _ parti.Ownership) error { <-ctx.Done(); return nil }
		run("handler", works, strategy.Sticky(), func(context.Context, parti.Ownership) error { return down }, down)
		run("source", source.Func(func(context.Context) ([]types.Partition, error) { return nil, down }), strategy.Sticky(), idle, down, parti.ErrSourceFailed)
		for name, assign := range map[string]types.StrategyFunc{
			"strategy":        func(context.Context, types.AssignmentInput) ([]int, error) { return nil, down },
			"strategy-panics": func(context.Context, types.AssignmentInput) ([]int, error) { panic("it broke") },
			"strategy-hangs":  func(ctx context.Context, _ types.AssignmentInput) ([]int, error) { <-ctx.Done(); return nil, down },
		} {
			run(name, works, assign, idle, parti.ErrStrategyFailed)
		}
	})
}

// A hook that ends its goroutine, as t.FailNow does, holds up neither the others nor Stop.
func TestHookThatExitsItsGoroutine(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		witness(t, env, parti.DefaultConfig().Namespace)
		var calls atomic.Int32
		m, err := parti.NewManager(env.Connect("w").JS(), source.Static(types.NewPartition("a")), strategy.Sticky(),
			parti.WithHooks(parti.Hooks{OnStateChanged: func(parti.StateChange) { calls.Add(1); runtime.Goexit() }}))
		require.NoError(t, err)
		require.NoError(t, m.Start(t.Context()))
		require.NoError(t, m.WaitReady(t.Context()))
		require.NoError(t, m.Stop(context.Background()))
		require.Greater(t, calls.Load(), int32(3))
	})
}
