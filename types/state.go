package types

import (
	"fmt"
	"slices"
	"strings"
)

// State is what a Manager as a whole is doing.
type State int

// The states of a Manager. Init → Joining → Waiting → Stable is the ordinary way; Scaling, Rebalancing and Emergency
// appear on the leader only; Degraded can be entered from any state after Joining and is left by proof that its cause is gone.
const (
	// StateInit: made, not started.
	StateInit State = iota
	// StateJoining: looking for the buckets and claiming a worker ID.
	StateJoining
	// StateWaiting: has a worker ID, and no commit has been applied for it yet.
	StateWaiting
	// StateStable: follows a commit.
	StateStable
	// StateScaling: this leader has seen joins and waits for more before it moves anything.
	StateScaling
	// StateRebalancing: this leader computes and publishes an assignment.
	StateRebalancing
	// StateEmergency: this leader replaces dead workers.
	StateEmergency
	// StateDegraded: the store cannot be reached or trusted; what the lease covers goes on, nothing new starts.
	StateDegraded
	// StateStopping: Stop was called; draining.
	StateStopping
	// StateStopped: everything has ended.
	StateStopped
)

var stateNames = [...]string{"init", "joining", "waiting", "stable", "scaling", "rebalancing", "emergency", "degraded", "stopping", "stopped"}

// String returns the state's name in lower case.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}

// MarshalText returns the state's name, so that it is readable in JSON and in structured logs.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the name of a state, and nothing else.
func (s *State) UnmarshalText(text []byte) error {
	return unmarshalName(s, "state", text, stateNames[:])
}

// unmarshalName sets v to the index of the name that text is.
func unmarshalName[T ~int | ~uint8](v *T, what string, text []byte, names []string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%w: %s %.64q: use one of %s", ErrMalformed, what, text, strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}

// CalculatorState is what the leader's calculator is doing.
type CalculatorState int

// The states of a calculator: Idle → Scaling → Rebalancing → Idle; Idle or Scaling → Emergency → Idle; Idle → Rebalancing
// for changes of the partitions.
const (
	CalculatorIdle CalculatorState = iota
	CalculatorScaling
	CalculatorRebalancing
	CalculatorEmergency
)

var calculatorStateNames = [...]string{"idle", "scaling", "rebalancing", "emergency"}

// String returns the state's name in lower case.
func (s CalculatorState) String() string {
	if s < 0 || int(s) >= len(calculatorStateNames) {
		return "unknown"
	}
	return calculatorStateNames[s]
}

// MarshalText returns the state's name.
func (s CalculatorState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the name of a state, and nothing else.
func (s *CalculatorState) UnmarshalText(text []byte) error {
	return unmarshalName(s, "calculator state", text, calculatorStateNames[:])
}
