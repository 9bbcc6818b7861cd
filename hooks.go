package parti

import (
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are called when something happens. Any may be nil. A hook that panics is logged and counts as having returned.
//
// The first four are about one partition, and are called in parallel for different ones. OnAssigned, the handler and OnRevoked come one
// after the other, and a partition is not released before they have returned. OnLost comes beside them when the lease has ended, and others
// do not wait for it; this worker takes part again when all have returned. OnOwnership has an order of its own and delays nothing.
//
// The others are about the whole worker: one is called at a time, in the order in which things happened; a slow one delays the others and
// nothing else. Stop waits for all of them as long as its context allows.
type Hooks struct {
	// OnAssigned is called when a partition starts here, before its handler.
	OnAssigned func(o Ownership)
	// OnRevoked is called when a partition goes to another owner or the Manager stops, after its handler has returned. What the
	// hook does still happens under this ownership.
	OnRevoked func(o Ownership)
	// OnLost is called when the lease has ended, at once: the partition is not this worker's any more, and others may have it already. It waits
	// neither for the handler, nor for OnAssigned or OnRevoked. With [Available] ownership it is not called.
	OnLost func(o Ownership)
	// OnOwnership is called for every transition of every ownership: for one partition in order, one at a time, also where an earlier run of
	// it still drains while it is given to this worker again. It is told afterwards and nothing waits for it, so by then more may have
	// happened. Of one partition up to 64 calls wait for a slow hook, then the oldest is dropped; transitions of further partitions are
	// dropped while calls of more than twice as many as this worker ever had at a time, and 1,024, have not returned. What is dropped is
	// counted by the metrics (ChangesDropped).
	OnOwnership func(c OwnershipChange)

	// OnStateChanged is called for every change of the Manager's state.
	OnStateChanged func(c StateChange)
	// OnElected is called when this process begins to lead. Reason is nil.
	OnElected func(l Leadership)
	// OnSteppingDown is called when this leader is about to give up the lead: because it stops (ErrStopped), because its incarnation has
	// ended, or because it cannot do its work. OnLeadershipLost follows.
	OnSteppingDown func(l Leadership)
	// OnLeadershipLost is called when the term is over, once for each OnElected.
	OnLeadershipLost func(l Leadership)
	// OnRebalanceStarted is called on the leader when it begins to make a commit, and OnRebalanceEnded when it has made one, found none
	// needed, or failed, before OnLeadershipLost at the latest. Every start has its end.
	OnRebalanceStarted func(r Rebalance)
	OnRebalanceEnded   func(r Rebalance)
	// OnAssignment is called with each assignment that was applied.
	OnAssignment func(a Assignment)
	// OnAlert is called when the Manager has been degraded for DegradedWarn, DegradedError and DegradedCritical, and with AlertOver when
	// it no longer is after one of those. Hooks of the whole worker wait for each other, so one that blocks delays alerts too.
	OnAlert func(a Alert)
	// OnError is called with errors that nobody waits for. The Manager goes on after them.
	OnError func(err error)
}

// Leadership is a term of this process as the leader.
type Leadership struct {
	// Term numbers the terms of a group; it grows.
	Term uint64 `json:"term"`
	// Reason says why it ends: what OnSteppingDown told, or why it was lost. In JSON it is its text.
	Reason error `json:"reason,omitempty"`
}

// Rebalance is the making of a commit by this leader.
type Rebalance struct {
	Term uint64 `json:"term"`
	// Generation is the version of the commit: the one in force at the start, the one in force at the end. They are the same where nothing
	// had to change, or Err is set.
	Generation int64 `json:"generation"`
	// Reason is one of the types.Lifecycle constants.
	Reason string `json:"reason"`
	// Moved counts the partitions that went from one worker to another, Took is the time since the start. 0 at the start.
	// In JSON Took is written as "1.5s".
	Moved int           `json:"moved"`
	Took  time.Duration `json:"took"`
	// Err says why this leader knows of no new commit. It is tried again, by this leader or the next. In JSON it is its text.
	Err error `json:"error,omitempty"`
}

// StateChange is a transition of the Manager's state.
type StateChange struct {
	From State     `json:"from"`
	To   State     `json:"to"`
	At   time.Time `json:"at"`
	// Reason says why, in words.
	Reason string `json:"reason"`
}

// groupHooks is how many calls of hooks of the whole worker may wait.
const groupHooks = 1024

// subscriptionBuffer is how many changes a subscriber may be behind before it misses some.
const subscriptionBuffer = 64

// broadcaster hands state changes to subscribers. A slow one loses the oldest changes, never the latest.
type broadcaster struct {
	dropped func(n int)

	mu     sync.Mutex
	last   StateChange
	subs   map[chan StateChange]struct{}
	closed bool
}

func newBroadcaster(dropped func(int)) *broadcaster {
	return &broadcaster{dropped: dropped, subs: map[chan StateChange]struct{}{}, last: StateChange{At: time.Now()}}
}

// subscribe returns a channel that has the present state as its first value.
func (b *broadcaster) subscribe() (<-chan StateChange, func()) {
	ch := make(chan StateChange, subscriptionBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	ch <- StateChange{From: b.last.To, To: b.last.To, At: b.last.At, Reason: b.last.Reason}
	if b.closed {
		close(ch)
		return ch, func() {}
	}
	b.subs[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.subs[ch]; ok {
			delete(b.subs, ch)
			close(ch)
		}
	}
}

// send hands out a change. Only the broadcaster sends, so dropping the oldest always makes room.
func (b *broadcaster) send(c StateChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = c
	for ch := range b.subs {
		select {
		case ch <- c:
			continue
		default:
		}
		select {
		case <-ch:
			b.dropped(1)
		default:
		}
		ch <- c
	}
}

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for ch := range b.subs {
		delete(b.subs, ch)
		close(ch)
	}
}

// watched returns the hooks of the whole worker such that each says while it is called that it is. One is called at a time.
func (h Hooks) watched(called *atomic.Value) Hooks {
	h.OnStateChanged = watch("OnStateChanged", h.OnStateChanged, called)
	h.OnElected = watch("OnElected", h.OnElected, called)
	h.OnSteppingDown = watch("OnSteppingDown", h.OnSteppingDown, called)
	h.OnLeadershipLost = watch("OnLeadershipLost", h.OnLeadershipLost, called)
	h.OnRebalanceStarted = watch("OnRebalanceStarted", h.OnRebalanceStarted, called)
	h.OnRebalanceEnded = watch("OnRebalanceEnded", h.OnRebalanceEnded, called)
	h.OnAssignment = watch("OnAssignment", h.OnAssignment, called)
	h.OnAlert = watch("OnAlert", h.OnAlert, called)
	h.OnError = watch("OnError", h.OnError, called)
	return h
}

func watch[T any](name string, f func(T), called *atomic.Value) func(T) {
	if f == nil {
		return nil
	}
	return func(v T) {
		called.Store(name)
		defer called.Store("")
		f(v)
	}
}

// hook returns call as something that can be called later, or nil where the hook is not set.
func hook[T any](f func(T), v T) func() {
	if f == nil {
		return nil
	}
	return func() { f(v) }
}
