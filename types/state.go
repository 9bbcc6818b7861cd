package types

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
