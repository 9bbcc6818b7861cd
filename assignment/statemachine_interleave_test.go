package assignment

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/assert"
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

// reasonsOf are those that each state may have.
var reasonsOf = map[types.CalculatorState][]string{
	types.CalculatorIdle: {""}, types.CalculatorScaling: {"s"}, types.CalculatorRebalancing: {"r", "c"}, types.CalculatorEmergency: {types.LifecycleEmergency},
}

// herd makes the calls at once. They all wait for the lock first, for over a millisecond, and then the first of them is woken in vain: from there on
// a sync.Mutex goes from hand to hand in the order of asking. So a call that takes the lock twice has others in between, and what is done in two
// steps is seen half done. Only how much a fault shows depends on that, not what is right.
func herd(sm *StateMachine, calls []func()) {
	spin := func(d time.Duration) {
		for began := time.Now(); time.Since(began) < d; {
			runtime.Gosched()
		}
	}
	sm.mu.Lock()
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
	}
	spin(2 * time.Millisecond)
	sm.mu.Unlock()
	sm.mu.Lock()
	spin(time.Millisecond)
	sm.mu.Unlock()
	wg.Wait()
}

// TestStateMachineInterleavings has goroutines make random calls at once. Whatever their order is, the transitions told of are permitted, as many
// as calls that returned true, and form one path: every state is left as often as it is entered, but for the first and the last. At any
// moment the latest state that a subscriber was told is the present one, and the reason is that state's.
func TestStateMachineInterleavings(t *testing.T) {
	var mu sync.Mutex
	var told []transition
	sm := NewStateMachine(func(from, to types.CalculatorState, reason string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, transition{from, to, reason})
	})
	ch, unsubscribe := sm.Subscribe()
	defer unsubscribe()
	var made atomic.Int32
	calls := []func() bool{
		func() bool { return sm.EnterScaling("s") },
		func() bool { return sm.EnterRebalancing("r") },
		func() bool { return sm.TryClaimRebalancing("c") },
		sm.TryClaimEmergency,
		sm.ReturnToIdle,
	}
	latest := types.CalculatorIdle // told to the subscriber; guarded by sm.mu
	look := func() {
		sm.mu.Lock()
		defer sm.mu.Unlock()
		for len(ch) > 0 { // nobody else reads it
			latest = <-ch
		}
		assert.Equal(t, sm.state, latest, "the latest state is told")
		assert.Contains(t, reasonsOf[sm.state], sm.reason, "the reason of %v", sm.state)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var at []func()
		for range 10 {
			call := calls[rng.IntN(len(calls))]
			at = append(at, look, func() {
				if call() {
					made.Add(1)
				}
			})
		}
		var late <-chan types.CalculatorState
		var endLate func()
		at = append(at, func() { late, endLate = sm.Subscribe() })
		rng.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
		herd(sm, at)
		endLate()
		var last types.CalculatorState
		for s := range late {
			last = s
		}
		require.Equal(t, sm.GetState(), last, "who subscribes meanwhile misses nothing that comes after")
		require.False(t, t.Failed())
	}
	require.Len(t, told, int(made.Load()))
	balance := map[types.CalculatorState]int{types.CalculatorIdle: 1}
	for _, tr := range told {
		require.True(t, permitted[tr], "%v → %v (%q)", tr.from, tr.to, tr.reason)
		balance[tr.from]--
		balance[tr.to]++
	}
	for state, b := range balance {
		want := 0
		if state == sm.GetState() {
			want = 1
		}
		require.Equal(t, want, b, "%v was entered that much more often than left", state)
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
