package assignment

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// transition is one that a state machine told of.
type transition struct {
	from, to types.CalculatorState
	reason   string
}

// permitted has the transitions of the table, with the reasons that TestStateMachineInterleavings gives. Into Idle the reason is that of the
// state left.
var permitted = map[transition]bool{
	{types.CalculatorIdle, types.CalculatorScaling, "s"}:                           true,
	{types.CalculatorScaling, types.CalculatorRebalancing, "r"}:                    true,
	{types.CalculatorIdle, types.CalculatorRebalancing, "c"}:                       true,
	{types.CalculatorIdle, types.CalculatorEmergency, types.LifecycleEmergency}:    true,
	{types.CalculatorScaling, types.CalculatorEmergency, types.LifecycleEmergency}: true,
	{types.CalculatorScaling, types.CalculatorIdle, "s"}:                           true,
	{types.CalculatorRebalancing, types.CalculatorIdle, "r"}:                       true,
	{types.CalculatorRebalancing, types.CalculatorIdle, "c"}:                       true,
	{types.CalculatorEmergency, types.CalculatorIdle, types.LifecycleEmergency}:    true,
}

// TestStateMachineInterleavings has goroutines make random calls at once. Whatever their order was, the transitions told of are permitted, as many
// as calls that returned true, and form one path: every state is left as often as it is entered, but for the first and the last.
func TestStateMachineInterleavings(t *testing.T) {
	calls := []func(*StateMachine) bool{
		func(sm *StateMachine) bool { return sm.EnterScaling("s") },
		func(sm *StateMachine) bool { return sm.EnterRebalancing("r") },
		func(sm *StateMachine) bool { return sm.TryClaimRebalancing("c") },
		(*StateMachine).TryClaimEmergency,
		(*StateMachine).ReturnToIdle,
	}
	for seed := range uint64(5) {
		var mu sync.Mutex
		var told []transition
		sm := NewStateMachine(func(from, to types.CalculatorState, reason string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, transition{from, to, reason})
		})
		ch, unsubscribe := sm.Subscribe()
		made := make([]int, 4)
		var wg sync.WaitGroup
		for i := range made {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for range 3000 {
					if calls[rng.IntN(len(calls))](sm) {
						made[i]++
					}
				}
			})
		}
		var seen []types.CalculatorState
		var reader sync.WaitGroup
		reader.Go(func() { // it may miss some
			for s := range ch {
				seen = append(seen, s)
			}
		})
		wg.Wait()
		unsubscribe()
		reader.Wait()

		n := 0
		for _, m := range made {
			n += m
		}
		require.Len(t, told, n, "seed %d", seed)
		balance := map[types.CalculatorState]int{types.CalculatorIdle: 1}
		for _, tr := range told {
			require.True(t, permitted[tr], "seed %d: %v → %v (%q)", seed, tr.from, tr.to, tr.reason)
			balance[tr.from]--
			balance[tr.to]++
		}
		for state, b := range balance {
			want := 0
			if state == sm.GetState() {
				want = 1
			}
			require.Equal(t, want, b, "seed %d: %v was entered that much more often than left", seed, state)
		}
		require.Equal(t, sm.GetState(), seen[len(seen)-1], "the latest is never missed")
	}
}

// TestReasonIsThereWhenASubscriberReads: the first read of the reason after a state came through Subscribe finds that state's.
func TestReasonIsThereWhenASubscriberReads(t *testing.T) {
	sm := NewStateMachine(nil)
	ch, unsubscribe := sm.Subscribe()
	defer unsubscribe()
	require.Equal(t, types.CalculatorIdle, <-ch)
	steps := []struct {
		do  func() bool
		to  types.CalculatorState
		why string
	}{
		{func() bool { return sm.EnterScaling("s") }, types.CalculatorScaling, "s"},
		{func() bool { return sm.EnterRebalancing("r") }, types.CalculatorRebalancing, "r"},
		{sm.ReturnToIdle, types.CalculatorIdle, ""},
		{func() bool { return sm.TryClaimRebalancing("c") }, types.CalculatorRebalancing, "c"},
		{sm.ReturnToIdle, types.CalculatorIdle, ""},
		{sm.TryClaimEmergency, types.CalculatorEmergency, types.LifecycleEmergency},
		{sm.ReturnToIdle, types.CalculatorIdle, ""},
	}
	type reading struct {
		state  types.CalculatorState
		reason string
	}
	readings, next := make(chan reading), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(readings)
		for range next {
			var s types.CalculatorState
			for more := true; more; { // awake at the moment of the notification, so that nothing passes in between
				select {
				case s = <-ch:
					more = false
				default:
					runtime.Gosched()
				}
			}
			readings <- reading{s, sm.GetScalingReason()}
		}
	})
	for range 200 {
		for _, step := range steps {
			next <- struct{}{}
			made := make(chan bool, 1)
			wg.Go(func() { made <- step.do() })
			got := <-readings
			require.Equal(t, reading{step.to, step.why}, got)
			require.True(t, <-made)
		}
	}
	close(next)
	wg.Wait()
}
