package parti

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Who looks from outside, or gives orders, is told that nobody answered and who was asked, or that the connection is closed.
func TestNobodyAnswersAnOutsider(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		m := newTestManager(t, env.Connect("w").JS())
		require.NoError(t, m.Start(t.Context()))
		c := env.Connect("operator")
		calls := map[string]func(ctx context.Context) error{
			"inspect": func(ctx context.Context) error { _, err := Inspect(ctx, c.JS(), "parti"); return err },
			"groups":  func(ctx context.Context) error { _, err := Groups(ctx, c.JS()); return err },
			"drain":   func(ctx context.Context) error { _, err := Drain(ctx, c.JS(), "parti", "nobody"); return err },
		}
		each := func(check func(t *testing.T, name string, err error)) {
			for name, call := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				check(t, name, call(ctx))
				cancel()
			}
		}
		server := c.Conn().Servers()[0]
		c.Gate().Hold(natstest.FromServer)
		each(func(t *testing.T, name string, err error) {
			require.ErrorIs(t, err, ErrNoServer, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorContains(t, err, "asked was "+server, name)
		})
		c.Gate().Heal()
		c.Gate().Cut()
		time.Sleep(time.Second)
		each(func(t *testing.T, name string, err error) {
			require.ErrorIs(t, err, ErrNoServer, name)
			require.ErrorContains(t, err, "the connection to "+server+" is RECONNECTING", name)
		})
		c.Gate().Heal()
		env.WaitFor(time.Minute, "connected again", c.Conn().IsConnected)
		require.NoError(t, calls["inspect"](t.Context()))

		require.NoError(t, m.Stop(t.Context()))
		time.AfterFunc(5*time.Second, c.Conn().Close)
		began := time.Now()
		_, err := Drain(t.Context(), c.JS(), "parti", "nobody") // whom nobody answers: there is no leader
		require.ErrorIs(t, err, ErrConnectionClosed)
		require.Less(t, time.Since(began), 10*time.Second)
		each(func(t *testing.T, name string, err error) {
			require.ErrorIs(t, err, ErrConnectionClosed, name)
			require.ErrorIs(t, err, nats.ErrConnectionClosed, name)
		})
	})
}

// With nats.NoEcho two Managers on one connection do all but hear each other's Refresh, and that error names the option.
func TestRefreshWithoutEcho(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		js := env.Connect("both", nats.NoEcho()).JS()
		var ms []*Manager
		for range 2 {
			m, err := NewManager(js, source.Static(types.NewPartition("a"), types.NewPartition("b")), strategy.RoundRobin(),
				WithStorage(jetstream.MemoryStorage), WithHandler(func(ctx context.Context, _ Ownership) error { <-ctx.Done(); return nil }))
			require.NoError(t, err)
			require.NoError(t, m.Start(t.Context()))
			ms = append(ms, m)
		}
		env.WaitFor(time.Minute, "both run", func() bool { return ms[0].Status().Running == 1 && ms[1].Status().Running == 1 })
		time.Sleep(time.Second)
		for _, m := range ms {
			err := m.Refresh(t.Context())
			if m.IsLeader() {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, ErrNotLeader)
			require.ErrorContains(t, err, "nats.NoEcho()")
		}
		for _, m := range ms {
			require.NoError(t, m.Stop(t.Context()))
		}
	})
}
