package types

import "time"

// Metrics receives measurements. Every method may be called from any goroutine and must return at once. Embed [NopMetrics] to
// implement only what you need; methods are added in minor releases.
type Metrics interface {
	ManagerMetrics
	CalculatorMetrics
	PublisherMetrics
	AuditMetrics
}

// ManagerMetrics is what every worker reports.
type ManagerMetrics interface {
	// StateChanged reports a change of the Manager's state.
	StateChanged(from, to State)
	// HeartbeatSent reports one attempt to write the heartbeat: how long it took, and whether it was stored.
	HeartbeatSent(took time.Duration, err error)
	// LeaderChanged reports whether this worker leads now.
	LeaderChanged(leading bool)
	// CommitApplied reports a commit that was applied: its version and how many partitions it gives to this worker.
	CommitApplied(version int64, partitions int)
	// CommitRejected reports a commit that could not be verified; stage is the name of the failed check.
	CommitRejected(version int64, stage string)
	// PartitionsRunning reports how many partitions this worker runs now.
	PartitionsRunning(n int)
	// HandlerFailed reports a handler that returned an error or panicked and will be started again.
	HandlerFailed(partition string, panicked bool)
	// HandlerOverdue reports a handler that has not returned although its context ended long ago.
	HandlerOverdue(partition string)
	// HandoffForced reports a partition that was started although an earlier holder is not known to have released it.
	HandoffForced(partition string)
	// LeaseExpired reports that this worker fenced itself.
	LeaseExpired()
	// ChangesDropped reports state changes that a slow subscriber did not get.
	ChangesDropped(n int)
}

// CalculatorMetrics is what the leader reports about its decisions.
type CalculatorMetrics interface {
	// CalculatorStateChanged reports a transition of the calculator.
	CalculatorStateChanged(from, to CalculatorState, reason string)
	// Rebalanced reports an assignment that was computed and committed, or failed.
	Rebalanced(reason string, took time.Duration, moved int, err error)
	// WorkersSeen reports the number of live workers.
	WorkersSeen(n int)
	// PartitionsParked reports the number of partitions of the source that nobody owns.
	PartitionsParked(n int)
	// StrategyFailed reports a strategy that returned an error, panicked or exceeded its time, so that the fallback was used.
	StrategyFailed(err error)
	// SourceFailed reports a source that returned an error, panicked or exceeded its time.
	SourceFailed(err error)
}

// AuditMetrics is what the leader reports about single workers and labels.
type AuditMetrics interface {
	// WorkersBehind reports how many workers have not applied the present commit within the grace for that.
	WorkersBehind(n int)
	// WorkerEvicted reports that the key of a stuck worker was deleted, so that it ends and claims anew.
	WorkerEvicted(worker string)
	// WorkersDamped reports how many workers are given nothing for now because they come and go, or were evicted as stuck.
	WorkersDamped(n int)
	// WorkersStandingBy reports how many workers are beyond the limit of the group's size, and given nothing.
	WorkersStandingBy(n int)
	// LabelPool reports the live workers that carry a label, and the partitions with it that nobody owns. A label that no partition
	// asks for and no worker carries any more is reported once more, with 0 and 0.
	LabelPool(label string, workers, parked int)
}

// PublisherMetrics is what the leader reports about its writes.
type PublisherMetrics interface {
	// CommitPublished reports one attempt to publish a commit.
	CommitPublished(version int64, took time.Duration, err error)
	// PayloadsWritten reports how many content-addressed values were created and how many were there already.
	PayloadsWritten(created, adopted int)
	// GarbageCollected reports one pass: how many values were deleted, and how many deletions failed.
	GarbageCollected(deleted, failed int)
}

// NopMetrics implements [Metrics] and does nothing.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// StateChanged does nothing.
func (NopMetrics) StateChanged(State, State) {}

// HeartbeatSent does nothing.
func (NopMetrics) HeartbeatSent(time.Duration, error) {}

// LeaderChanged does nothing.
func (NopMetrics) LeaderChanged(bool) {}

// CommitApplied does nothing.
func (NopMetrics) CommitApplied(int64, int) {}

// CommitRejected does nothing.
func (NopMetrics) CommitRejected(int64, string) {}

// PartitionsRunning does nothing.
func (NopMetrics) PartitionsRunning(int) {}

// HandlerFailed does nothing.
func (NopMetrics) HandlerFailed(string, bool) {}

// HandlerOverdue does nothing.
func (NopMetrics) HandlerOverdue(string) {}

// HandoffForced does nothing.
func (NopMetrics) HandoffForced(string) {}

// LeaseExpired does nothing.
func (NopMetrics) LeaseExpired() {}

// ChangesDropped does nothing.
func (NopMetrics) ChangesDropped(int) {}

// CalculatorStateChanged does nothing.
func (NopMetrics) CalculatorStateChanged(CalculatorState, CalculatorState, string) {}

// Rebalanced does nothing.
func (NopMetrics) Rebalanced(string, time.Duration, int, error) {}

// WorkersSeen does nothing.
func (NopMetrics) WorkersSeen(int) {}

// PartitionsParked does nothing.
func (NopMetrics) PartitionsParked(int) {}

// StrategyFailed does nothing.
func (NopMetrics) StrategyFailed(error) {}

// SourceFailed does nothing.
func (NopMetrics) SourceFailed(error) {}

// WorkersBehind does nothing.
func (NopMetrics) WorkersBehind(int) {}

// WorkerEvicted does nothing.
func (NopMetrics) WorkerEvicted(string) {}

// WorkersDamped does nothing.
func (NopMetrics) WorkersDamped(int) {}

// WorkersStandingBy does nothing.
func (NopMetrics) WorkersStandingBy(int) {}

// LabelPool does nothing.
func (NopMetrics) LabelPool(string, int, int) {}

// CommitPublished does nothing.
func (NopMetrics) CommitPublished(int64, time.Duration, error) {}

// PayloadsWritten does nothing.
func (NopMetrics) PayloadsWritten(int, int) {}

// GarbageCollected does nothing.
func (NopMetrics) GarbageCollected(int, int) {}
