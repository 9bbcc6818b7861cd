package assignment

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A new leader decides nothing before it has listed the orders. If that fails for a while, because answers vanish and the connection stays
// up, it is tried again soon after they come again, and not half a minute later.
func TestOrdersAreListedSoonAfterAnOutage(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		cfg := Config{
			Self: types.Holder{Worker: "w", Incarnation: "i"}, Namespace: "g", Control: e.buckets.Control, Heartbeats: e.buckets.Heartbeat,
			HeartbeatTTL: testTTL, RequestTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
		}
		for range 5 {
			d := newDesk(&cfg, func() {})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			e.leader.Gate().Hold(natstest.FromServer)
			go func() { defer close(done); d.run(ctx) }()
			time.Sleep(90 * time.Second)
			_, listed := d.look()
			require.False(t, listed)
			e.leader.Gate().Heal()
			healed := time.Now()
			env.WaitFor(time.Minute, "the orders are listed", func() bool { _, listed := d.look(); return listed })
			took := time.Since(healed)
			cancel()
			<-done
			require.Less(t, took, testTTL/4+2*time.Second)
		}
	})
}

// A leader that does not know the orders decides nothing: each listing of them that fails is told and logged, until one has succeeded. After that
// it hears of what is ordered, and a listing that fails holds up nothing.
func TestOrdersThatCannotBeListedAreTold(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		type outcome struct {
			err    error
			failed int
			since  time.Time
		}
		told := make(chan outcome, 100)
		var log strings.Builder
		cfg := Config{
			Self: types.Holder{Worker: "w", Incarnation: "i"}, Namespace: "g", Control: e.buckets.Control, Heartbeats: e.buckets.Heartbeat,
			HeartbeatTTL: testTTL, RequestTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			OnOrders: func(err error, failed int, since time.Time) { told <- outcome{err, failed, since} },
		}
		d := newDesk(&cfg, func() {})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		e.leader.Gate().Hold(natstest.FromServer)
		go func() { defer close(done); d.run(ctx) }()
		time.Sleep(time.Minute)
		e.leader.Gate().Heal()
		env.WaitFor(time.Minute, "the orders are listed", func() bool { _, listed := d.look(); return listed })
		e.leader.Gate().Hold(natstest.FromServer)
		time.Sleep(5 * time.Minute)
		e.leader.Gate().Heal()
		cancel()
		<-done

		close(told)
		failed, first := 0, outcome{}
		for o := range told {
			if o.err == nil {
				require.Empty(t, told, "nothing is told after the first success")
				break
			}
			if failed++; failed == 1 {
				first = o
			}
			require.Equal(t, failed, o.failed)
			require.Equal(t, first.since, o.since)
		}
		require.Greater(t, failed, 5)
		require.Greater(t, strings.Count(log.String(), "orders could not be listed"), failed, "and the later ones are logged")
	})
}
