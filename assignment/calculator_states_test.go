package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A subscriber sees what the calculator does, with its reason, from the present state on; the end of the calculator is a return to Idle and closes
// nothing.
func TestSubscribeToStateChanges(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		ch, end := e.calc.SubscribeToStateChanges()
		other, endOther := e.calc.SubscribeToStateChanges()
		defer endOther()
		next := func(ch <-chan types.CalculatorState) types.CalculatorState {
			t.Helper()
			select {
			case s, open := <-ch:
				require.True(t, open)
				return s
			case <-time.After(time.Minute):
				t.Fatal("no state in a minute")
				panic("unreachable")
			}
		}
		require.Equal(t, types.CalculatorIdle, next(ch), "the present state first")

		land := make(chan struct{})
		wait := func(context.Context) error { <-land; return nil }
		e.committer.before.Store(&wait)
		e.fleet.join("c")
		require.Equal(t, types.CalculatorScaling, next(ch))
		require.Equal(t, types.LifecycleScale, e.calc.GetScalingReason())
		require.Equal(t, types.CalculatorRebalancing, next(ch))
		require.Equal(t, types.LifecycleScale, e.calc.GetScalingReason())
		require.Equal(t, c.Version, e.calc.CurrentVersion(), "before it has landed")
		close(land)
		require.Equal(t, types.CalculatorIdle, next(ch))
		require.Empty(t, e.calc.GetScalingReason())
		landed, _ := e.commit()
		require.Greater(t, landed.Version, c.Version)

		end()
		end()
		_, open := <-ch
		require.False(t, open, "closed by its own function")
		for _, want := range []types.CalculatorState{
			types.CalculatorIdle, types.CalculatorScaling, types.CalculatorRebalancing, types.CalculatorIdle,
		} {
			require.Equal(t, want, next(other), "one that reads late, within the buffer")
		}

		e.fleet.join("d")
		require.Equal(t, types.CalculatorScaling, next(other))
		e.stop()
		require.Equal(t, types.CalculatorIdle, next(other))
		require.Empty(t, other)
	})
}
