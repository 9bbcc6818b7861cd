package assignment

import (
	"sync"

	"github.com/partigo/parti/types"
)

// stateBuffer is how many states a subscriber may lag behind; what it misses then are the oldest ones.
const stateBuffer = 4

// StateMachine is what the calculator is doing, and why. Its transitions are strict: each names the states it may start from and
// does nothing from any other.
//
//	Idle → Scaling → Rebalancing → Idle
//	Idle | Scaling → Emergency → Idle
//	Idle → Rebalancing             changes of the partitions, leaves, manual
//	Scaling → Idle                 those who joined are gone again
//
// The calculator's loop makes the transitions; anybody may read and subscribe.
type StateMachine struct {
	onChange func(from, to types.CalculatorState, reason string)

	mu     sync.Mutex
	state  types.CalculatorState
	reason string
	subs   map[chan types.CalculatorState]struct{}
}

// NewStateMachine returns a machine in Idle. onChange, which may be nil, is called after each transition by the goroutine that
// made it; the reason is that of the state entered, or of the one left where that is Idle.
func NewStateMachine(onChange func(from, to types.CalculatorState, reason string)) *StateMachine {
	if onChange == nil {
		onChange = func(types.CalculatorState, types.CalculatorState, string) {}
	}
	return &StateMachine{onChange: onChange, subs: make(map[chan types.CalculatorState]struct{})}
}

// GetState returns the present state.
func (sm *StateMachine) GetState() types.CalculatorState {
	sm.mu.Lock()
	defer sm.mu.Unlock()
	return sm.state
}

// GetScalingReason returns why the machine is not idle, as one of the types.Lifecycle constants; empty when it is idle.
func (sm *StateMachine) GetScalingReason() string {
	sm.mu.Lock()
	defer sm.mu.Unlock()
	return sm.reason
}

// EnterScaling opens a window: Idle → Scaling.
func (sm *StateMachine) EnterScaling(reason string) bool {
	return sm.swap(types.CalculatorScaling, reason, types.CalculatorIdle)
}

// EnterRebalancing ends a window: Scaling → Rebalancing.
func (sm *StateMachine) EnterRebalancing(reason string) bool {
	return sm.swap(types.CalculatorRebalancing, reason, types.CalculatorScaling)
}

// TryClaimRebalancing begins a rebalance that needs no window: Idle → Rebalancing.
func (sm *StateMachine) TryClaimRebalancing(reason string) bool {
	return sm.swap(types.CalculatorRebalancing, reason, types.CalculatorIdle)
}

// TryClaimEmergency begins the replacement of dead workers: Idle | Scaling → Emergency. An open window ends with it.
func (sm *StateMachine) TryClaimEmergency() bool {
	return sm.swap(types.CalculatorEmergency, types.LifecycleEmergency, types.CalculatorIdle, types.CalculatorScaling)
}

// ReturnToIdle ends whatever is under way: Scaling | Rebalancing | Emergency → Idle.
func (sm *StateMachine) ReturnToIdle() bool {
	return sm.swap(types.CalculatorIdle, "", types.CalculatorScaling, types.CalculatorRebalancing, types.CalculatorEmergency)
}

// swap goes to the state if the present one is among from. The reason is in place before anybody is told.
func (sm *StateMachine) swap(to types.CalculatorState, reason string, from ...types.CalculatorState) bool {
	was, why, ok := sm.apply(to, reason, from)
	if ok {
		sm.onChange(was, to, why)
	}
	return ok
}

func (sm *StateMachine) apply(to types.CalculatorState, reason string, from []types.CalculatorState) (was types.CalculatorState, why string, ok bool) {
	sm.mu.Lock()
	defer sm.mu.Unlock()
	for _, f := range from {
		ok = ok || sm.state == f
	}
	if !ok {
		return sm.state, "", false
	}
	was, why = sm.state, reason
	if to == types.CalculatorIdle {
		why = sm.reason
	}
	sm.state, sm.reason = to, reason
	for ch := range sm.subs {
		tell(ch, to)
	}
	return was, why, true
}

// tell hands s to a subscriber without ever waiting for it: the oldest state it has not read yet makes room. Only one goroutine
// sends at a time.
func tell(ch chan types.CalculatorState, s types.CalculatorState) {
	for {
		select {
		case ch <- s:
			return
		default:
		}
		select {
		case <-ch:
		default:
		}
	}
}

// Subscribe returns a channel of states, the present one first. A slow reader misses the oldest ones, never the latest. The
// channel is closed by the function returned, which may be called more than once.
func (sm *StateMachine) Subscribe() (<-chan types.CalculatorState, func()) {
	ch := make(chan types.CalculatorState, stateBuffer)
	sm.mu.Lock()
	defer sm.mu.Unlock()
	ch <- sm.state
	sm.subs[ch] = struct{}{}
	return ch, func() {
		sm.mu.Lock()
		defer sm.mu.Unlock()
		if _, ok := sm.subs[ch]; ok {
			delete(sm.subs, ch)
			close(ch)
		}
	}
}
