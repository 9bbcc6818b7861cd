package assignment

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A worker that is missing, and too recently for anybody to act on it, still carries its labels: what waits for it is not spilled.
func TestHeldCarrierSpillsNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.list = append(e.source.list, ofLabel("gpu", 4)...)
		e.fleet.join("b", "c")
		e.fleet.join("a")
		e.fleet.change(func(h *types.Heartbeat) { h.Labels, h.Capacity = []string{"gpu"}, types.Capacity{Partitions: 2} }, "a")
		e.start(func(c *Config) { c.LabelSpillGrace = 0 })
		c, s, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(c.Version)
		require.Len(t, s.Parked, 2, "there is no room for them")
		e.quiet(20 * time.Second)

		e.fleet.remove("a") // nobody says that it expired
		e.WaitFor(time.Minute, "it is held", func() bool { return e.calc.Status().Held == 1 })
		e.source.list = append(e.source.list, ofLabel("gpu", 5)[4:]...)
		e.source.signals <- struct{}{}
		c, s, _ = e.awaitCommit(c.Version, 5*time.Second)
		require.Equal(t, 1, e.calc.Status().Held)
		require.Len(t, s.Parked, 3, "nor for the new one")
		e.fleet.ack(c.Version)

		c, s, _ = e.awaitCommit(c.Version, time.Minute)
		require.Zero(t, e.calc.Status().Held, "it is taken for dead")
		require.Empty(t, s.Parked, "nobody carries the label, and there is no grace")
		require.Len(t, e.owners(s), 15)
	})
}
