package heartbeat

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// The time that a claim waits over a deleted key counts from that delete, not from an earlier one, after which the owner came back.
func TestClaimWaitsAnewAfterEachDelete(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		a := newWorker(t, env, "a", "x")
		env.WaitFor(time.Second, "a has it", func() bool { return a.id() == "x" })
		b := newWorker(t, env, "b", "x")
		remove := func(fences int) {
			e, _ := a.key("x")
			_, err := a.store.Delete(context.Background(), KeyPrefix+"x", e.Revision)
			require.NoError(t, err)
			env.WaitFor(time.Second, "a is fenced", func() bool { _, n := a.count(); return n == fences })
		}
		remove(1)
		time.Sleep(testInterval) // b has seen that the key is gone
		a.returnEverything()
		env.WaitFor(time.Second, "a is back", func() bool { claims, _ := a.count(); return claims == 2 })
		time.Sleep(2 * testTTL)
		remove(2)
		time.Sleep(testTTL - 10*time.Millisecond)
		claims, _ := b.count()
		require.Zero(t, claims, "what a runs may not have returned")
		env.WaitFor(2*testInterval, "b has it", func() bool { return b.id() == "x" })
		a.returnEverything()
	})
}
