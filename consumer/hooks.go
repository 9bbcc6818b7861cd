package consumer

import (
	"log/slog"
	"runtime/debug"
	"time"
)

// Hooks are called when something happens. Any may be nil. A hook that panics, or ends its goroutine, is logged and counts as having returned.
//
// For one partition, hooks are called in order, except that OnCommitted and OnError may come at the same time as others; for
// different partitions they are called in parallel. The work waits for them, so a slow one holds back its partition, and its release. While
// OnCommitted runs, nothing more of its partition is stored; what is handed out meanwhile is bounded, see [WithCommit].
//
// Do not wait in a hook for what waits for the hook: Close in any of them, [Reader.Seek] of its partition in any but OnAssigned, and [Reader.Ack] of its
// partition in OnCommitted and OnError, end with their context only. [Reader.AckLater] and [Reader.Resume] do not wait; or use a goroutine.
//
// What concerns the whole group has hooks of its own, see [WithManagerOptions] and parti.WithHooks: OnElected, OnSteppingDown,
// OnLeadershipLost, OnRebalanceStarted, OnRebalanceEnded, OnStateChanged and OnAssignment. The heartbeat is measured by parti.WithMetrics.
type Hooks struct {
	// OnAssigned is called when a partition's offset has been claimed, before anything of it is read. [Reader.Seek] in it says where
	// reading begins.
	OnAssigned func(partition int, epoch int64)
	// OnRevoked is called when a partition has been given back in good order: everything acknowledged is committed.
	OnRevoked func(partition int, epoch int64)
	// OnLost is called when a partition has ended otherwise, and nothing more is committed: the lease has run out, another owner has claimed the offset,
	// somebody has changed it from outside, or the last commit of a partition that was given back has failed.
	OnLost func(partition int, epoch int64)
	// OnCommitted is called with each offset that was stored, unless that became known only after the ownership had ended.
	OnCommitted func(o Offset)
	// OnStopped is called when a partition is not handed out any more because of err: a [*PoisonError], [*StreamChangedError] or
	// [*ExpiredError]. Resume and Seek start it again. It is called again where one of the last two comes upon the first.
	OnStopped func(partition int, err error)
	// OnExpired is called when messages were removed before they were read, whatever the policy is.
	OnExpired func(err *ExpiredError)
	// OnPoison is called when a message could not be processed, with what was done about it.
	OnPoison func(err *PoisonError, action PoisonAction)
	// OnError is called with errors that nobody waits for, and that are retried: with each that differs from the one before, and, as long
	// as it stays the same, again after waits that grow from a second to a minute. partition is -1 where it concerns all, e.g. the offsets' bucket.
	OnError func(partition int, err error)
}

// Metrics receives measurements. Every method may be called from any goroutine and must return at once. Embed [NopMetrics] to
// implement only what you need; methods are added in minor releases.
type Metrics interface {
	// PartitionAssigned and PartitionGone bracket an ownership: what is a gauge of the partition begins and ends with it.
	PartitionAssigned(partition int, epoch int64)
	PartitionGone(partition int)
	// Lag is a gauge: the messages of a partition that are known to be unprocessed. It is reported about once a second.
	Lag(partition int, messages uint64)
	// Buffered is a gauge: what is held in memory for a partition. It is reported about once a second.
	Buffered(partition int, messages, bytes int)
	// Fetched reports messages handed out: by a call of Fetch, and one at a time by All and Process. What Fetch returns
	// again, or Process tries again because its handler failed, is not counted again.
	Fetched(messages int)
	// Handled reports one call of a Process handler.
	Handled(partition int, took time.Duration, err error)
	// Committed reports one attempt to store an offset. One that is made together with other partitions' and is not confirmed is not reported, but
	// what is tried then for its partition alone is.
	Committed(partition int, took time.Duration, err error)
	// Expired reports stream sequences that were removed before they were read: an upper bound, see [ExpiredError].
	Expired(partition int, sequences uint64)
	// Poisoned reports a message that could not be processed.
	Poisoned(partition int, action PoisonAction)
	// ReadingRestarted reports that a partition's (or, where it is -1, a stream's) server-side consumer was made anew, and why.
	ReadingRestarted(partition int, reason string)
}

// NopMetrics implements [Metrics] and does nothing.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// PartitionAssigned does nothing.
func (NopMetrics) PartitionAssigned(int, int64) {}

// PartitionGone does nothing.
func (NopMetrics) PartitionGone(int) {}

// Lag does nothing.
func (NopMetrics) Lag(int, uint64) {}

// Buffered does nothing.
func (NopMetrics) Buffered(int, int, int) {}

// Fetched does nothing.
func (NopMetrics) Fetched(int) {}

// Handled does nothing.
func (NopMetrics) Handled(int, time.Duration, error) {}

// Committed does nothing.
func (NopMetrics) Committed(int, time.Duration, error) {}

// Expired does nothing.
func (NopMetrics) Expired(int, uint64) {}

// Poisoned does nothing.
func (NopMetrics) Poisoned(int, PoisonAction) {}

// ReadingRestarted does nothing.
func (NopMetrics) ReadingRestarted(int, string) {}

// guard calls user code and returns when that has ended; a panic is logged. It runs on a goroutine of its own, so that runtime.Goexit does not
// end the caller's.
func guard(log *slog.Logger, what string, call func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if v := recover(); v != nil {
				log.Error("panic in a hook", "hook", what, "panic", v, "stack", string(debug.Stack()))
			} else if !returned {
				log.Error("a hook has ended its goroutine", "hook", what)
			}
		}()
		call()
		returned = true
	}()
	<-ended
}
