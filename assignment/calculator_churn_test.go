package assignment

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

var incarnations = flag.Int("incarnations", 1000, "how many incarnations come and go in TestIncarnationsComeAndGo")

// Row 39: thousands of incarnations come and go. Neither the bucket of heartbeats nor what the leader remembers grows with their number.
// What bounds the control bucket is CommitGC, see its tests.
//
//	go test ./assignment -run TestIncarnationsComeAndGo -incarnations 5000
func TestIncarnationsComeAndGo(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		const rounds = 50
		each := max(1, *incarnations/rounds)
		e := newCalcEnv(t, env)
		e.fleet.join("stays")
		e.start()
		c, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(c.Version)
		keys := func() int {
			all, err := e.outside.Heartbeat.List(context.Background(), ">")
			require.NoError(t, err)
			return len(all)
		}
		half := 0
		for round := range rounds {
			var names []string
			for i := range each {
				names = append(names, fmt.Sprintf("r%d-%d", round, i)) // IDs that never come back: the worst case
			}
			e.fleet.join(names...)
			time.Sleep(4 * time.Second)
			e.fleet.leave(names...)
			e.fleet.call(func() {
				for _, id := range names {
					delete(e.fleet.workers, id)
				}
			})
			time.Sleep(24 * time.Second) // markers live some ten minutes: after 22 rounds as many end as come
			e.fleet.ack(e.calc.CurrentVersion())
			if round == rounds/2 {
				half = keys()
			}
		}
		beats := keys()
		t.Logf("heartbeat keys and markers: %d after half of them, %d at the end", half, beats)
		require.InDelta(t, half, beats, float64(6*each))
		e.calc.monitor.mu.Lock()
		records, past := len(e.calc.monitor.view.records), len(e.calc.monitor.view.past)
		e.calc.monitor.mu.Unlock()
		require.LessOrEqual(t, past, maxPast)
		require.LessOrEqual(t, records, beats)
		time.Sleep(30 * time.Minute)
		require.LessOrEqual(t, keys(), 3, "and in the end nothing is left of them")
	})
}
