package parti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A start that somebody gives up says so, and blames neither the server nor the address, unless it had waited for the server.
func TestStartThatIsGivenUp(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("w")
		log := &natstest.Buffer{}
		start := func(ctx context.Context, meanwhile func(m *Manager)) error {
			m, err := NewManager(c.JS(), source.Static(types.NewPartition("a")), strategy.Sticky(), WithWaitForServer(),
				WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- m.Start(ctx) }()
			meanwhile(m)
			err = <-done
			require.Equal(t, StateStopped, m.State())
			return err
		}
		nothing := func(*Manager) {}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := start(ctx, nothing)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrNoServer)
		ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		err = start(ctx, nothing)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrNoServer)

		c.Gate().Hold(natstest.FromServer)
		ctx, cancel = context.WithCancel(t.Context())
		err = start(ctx, func(*Manager) { time.Sleep(time.Second); cancel() }) // the first try has not ended
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrNoServer)
		err = start(t.Context(), func(m *Manager) { time.Sleep(time.Second); require.NoError(t, m.Stop(t.Context())) })
		require.ErrorIs(t, err, ErrStopped)
		require.NotContains(t, log.String(), "waiting for NATS")

		for _, wait := range []string{"in a try", "between two"} {
			ctx, cancel = context.WithCancel(t.Context())
			err = start(ctx, func(*Manager) { time.Sleep(20 * time.Second); cancel() })
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, ErrNoServer, "why it waited")
			require.NotContains(t, err.Error(), "check the address", wait)
			require.Contains(t, log.String(), "waiting for NATS")
			c.Gate().Heal()
			c.Gate().Cut() // from now on a try says at once that there is no connection
		}
		c.Gate().Heal()
	})
}

// The same where the buckets are there and an ID is not claimed yet.
func TestClaimThatIsGivenUp(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		m := newTestManager(t, env.Connect("w").JS())
		m.health.fail(fmt.Errorf("a claim: %w", kv.ErrUnavailable))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := m.unclaimed(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, kv.ErrUnavailable, "what it waited for")
		require.NotErrorIs(t, err, ErrNoServer)
		over, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		require.ErrorIs(t, m.unclaimed(over), ErrNoServer)
		require.NoError(t, m.Stop(t.Context()))
	})
}

// Stop does not wait for a hook beyond its context, and says for which one it waited.
func TestStopNamesTheHookThatHangs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("w").JS()
		for name, hooks := range map[string]func(hang chan struct{}) Hooks{
			"OnStateChanged": func(hang chan struct{}) Hooks { return Hooks{OnStateChanged: func(StateChange) { <-hang }} },
			"OnElected":      func(hang chan struct{}) Hooks { return Hooks{OnElected: func(Leadership) { <-hang }} },
			"OnSteppingDown": func(hang chan struct{}) Hooks { return Hooks{OnSteppingDown: func(Leadership) { <-hang }} },
			"OnLeadershipLost": func(hang chan struct{}) Hooks {
				return Hooks{OnLeadershipLost: func(Leadership) { <-hang }}
			},
			"OnRebalanceStarted": func(hang chan struct{}) Hooks { return Hooks{OnRebalanceStarted: func(Rebalance) { <-hang }} },
			"OnRebalanceEnded":   func(hang chan struct{}) Hooks { return Hooks{OnRebalanceEnded: func(Rebalance) { <-hang }} },
			"OnAssignment":       func(hang chan struct{}) Hooks { return Hooks{OnAssignment: func(Assignment) { <-hang }} },
			"OnOwnership":        func(hang chan struct{}) Hooks { return Hooks{OnOwnership: func(OwnershipChange) { <-hang }} },
		} {
			hang := make(chan struct{})
			m, err := NewManager(js, source.Static(types.NewPartition("a")), strategy.Sticky(), WithHooks(hooks(hang)),
				WithWindows(0, 0, 0), WithHandler(func(ctx context.Context, _ Ownership) error { <-ctx.Done(); return nil }))
			require.NoError(t, err)
			require.NoError(t, m.Start(t.Context()))
			env.WaitFor(time.Minute, "it runs", func() bool { return m.Status().Running == 1 })
			time.Sleep(time.Second)
			stop := func(within time.Duration) error {
				ctx, cancel := context.WithTimeout(context.Background(), within)
				defer cancel()
				return m.Stop(ctx)
			}
			first := make(chan error, 1)
			go func() { first <- stop(10 * time.Second) }()
			time.Sleep(5 * time.Second)
			err = stop(time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the Stop that was called first")
			err = <-first
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the hook "+name+" has not returned")
			close(hang)
			time.Sleep(time.Second)
		}
	})
}

// Hooks of the whole worker that were set are called, and no other one is.
func TestWatchedHooksAreTheSame(t *testing.T) {
	m := build(nil, nil, nil, settings{Config: DefaultConfig(), hooks: Hooks{OnError: func(err error) { panic(err) }}})
	require.Nil(t, m.set.hooks.OnAlert)
	require.PanicsWithError(t, "x", func() { m.set.hooks.OnError(errors.New("x")) })
	require.Equal(t, "", m.calling.Load())
}
