package integration

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// events keeps what is logged at level Info and above: the message, and of a state where it comes from and goes to.
type events struct {
	mu  sync.Mutex
	got []string
}

func (e *events) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (e *events) WithAttrs([]slog.Attr) slog.Handler           { return e }
func (e *events) WithGroup(string) slog.Handler                { return e }

func (e *events) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "from" || a.Key == "to" {
			line += " " + a.Value.String()
		}
		return true
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, line)
	return nil
}

// take returns what was logged since the last time.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	got := e.got
	e.got = nil
	return got
}

// A healthy worker says one thing once: what it became, and, if it leads, what it has changed.
func TestLogOfAHealthyGroup(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		var a, b events
		says := func(e *events, lines ...string) { t.Helper(); require.ElementsMatch(t, lines, e.take()) }
		leader := g.Start(1, parti.WithLogger(slog.New(&a)))[0]
		g.WaitAllRunning(10 * time.Second)
		g.Sleep(time.Minute)
		says(&a, "state init joining", "worker ID claimed", "elected leader", "state joining scaling", "assignment changed", "state scaling stable")

		follower := g.Start(1, parti.WithLogger(slog.New(&b)))[0]
		g.Sleep(time.Minute)
		says(&a, "state stable scaling", "assignment changed", "state scaling stable")
		says(&b, "state init joining", "worker ID claimed", "state joining stable")

		g.SetPartitions(time.Minute, grouptest.Numbered(12)...)
		g.Sleep(time.Minute)
		says(&a, "assignment changed")
		says(&b)

		leader.Stop()
		g.Sleep(time.Minute)
		says(&a, "state stable stopping", "leadership given up", "state stopping stopped")
		says(&b, "elected leader", "assignment changed")
		follower.Stop()
		says(&b, "state stable stopping", "leadership given up", "state stopping stopped")
	}, fast, grouptest.Partitions(8))
}

// After an outage a worker goes from degraded to waiting, and is never said to be stable in between.
func TestReclaimIsOneChangeOfState(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		settled(g, 2)
		w := g.Follower()
		changes, unsubscribe := w.Manager.Subscribe()
		defer unsubscribe()
		w.Client.Gate().Cut()
		g.WaitFor(time.Minute, "it is fenced", func() bool { return w.Manager.Status().Incarnation == "" })
		w.Client.Gate().Heal()
		g.WaitAllRunning(time.Minute)
		g.Sleep(10 * time.Second)
		var seen []parti.State
		for len(changes) > 0 {
			c := <-changes
			seen = append(seen, c.To)
		}
		require.Equal(t, []parti.State{parti.StateStable, parti.StateDegraded, parti.StateWaiting, parti.StateStable}, seen)
	}, fast, grouptest.Partitions(8))
}
