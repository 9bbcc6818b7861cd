package assignment

import (
	"context"
	"log/slog"
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
