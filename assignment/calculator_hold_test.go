package assignment

import (
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// Troubles form a row if each comes within a HeartbeatTTL of the one before. What is held meanwhile is told, with how long the row is; and that it is
// over, when nothing is held any more.
func TestHoldIsTold(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		var mu sync.Mutex
		var last Hold
		told := func() Hold {
			mu.Lock()
			defer mu.Unlock()
			return last
		}
		e.fleet.join("a", "b")
		e.start(func(c *Config) {
			c.OnHold = func(h Hold) {
				mu.Lock()
				defer mu.Unlock()
				last = h
			}
		})
		c, _, _ := e.awaitCommit(0, 10*time.Second)
		e.fleet.ack(c.Version)
		e.quiet(11 * time.Second)
		require.Equal(t, Hold{}, told())

		row := func() (began time.Time) {
			began = time.Now()
			for range 5 {
				e.calc.NoteTrouble()
				time.Sleep(testTTL - time.Second)
			}
			return began
		}
		began := row()
		require.False(t, told().Any(), "there is nothing to hold")
		require.Equal(t, 4*(testTTL-time.Second), told().Last.Sub(told().Since))
		require.Equal(t, began, told().Since)
		time.Sleep(2 * time.Second)

		e.source.set(20)
		e.source.signals <- struct{}{}
		time.Sleep(time.Second)
		e.fleet.crash("b")
		began = row()
		require.Equal(t, began, told().Since, "a row of its own")
		require.True(t, told().Any())
		require.Equal(t, 1, told().Workers)
		require.Equal(t, "one missing worker", told().String())
		e.source.set(30)
		e.source.signals <- struct{}{}
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, "one missing worker and a change of the source", told().String())
		time.Sleep(time.Second)
		require.Equal(t, Hold{}, told(), "the last trouble is a HeartbeatTTL ago")
	})
	require.Equal(t, "2 missing workers", Hold{Workers: 2}.String())
	require.Equal(t, "a change of the source", Hold{Source: true}.String())
}
