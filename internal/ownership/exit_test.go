package ownership

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// User code that ends its goroutine instead of returning is called again like one that panics, and leaves nothing behind.
func TestHandlerThatExitsItsGoroutine(t *testing.T) {
	calls := 0
	var hooks []string
	withRig(t, func(r *rig) {
		r.apply(1, entry("p", 1))
		r.beat()
		time.Sleep(time.Second)
		require.Equal(t, []string{"start p 1"}, r.take())
		require.Equal(t, 3, calls)
		require.True(t, r.rt.Owns("p"))
		r.locked(func() { require.Len(t, r.failures, 2); require.ErrorIs(t, r.failures[0], errExited) })
		r.apply(2)
		require.Equal(t, []string{"cancel p 1: parti: partition revoked", "return p 1"}, r.take())
		require.False(t, r.rt.Owns("p"))
		require.Zero(t, r.rt.Running())
		require.Equal(t, []string{"assigned", "revoked"}, hooks, "each is called once")
	}, func(c *Config) {
		handle := c.Handler
		c.Handler = func(ctx context.Context, o types.Ownership) error {
			if calls++; calls < 3 {
				runtime.Goexit()
			}
			return handle(ctx, o)
		}
		c.Hooks.OnAssigned = func(types.Ownership) { hooks = append(hooks, "assigned"); runtime.Goexit() }
		c.Hooks.OnRevoked = func(types.Ownership) { hooks = append(hooks, "revoked"); runtime.Goexit() }
	})
}
