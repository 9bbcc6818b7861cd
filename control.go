package parti

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// ControlAnswer is what has become of an operator's order.
type ControlAnswer struct {
	// Key is the order's key in the control bucket.
	Key string `json:"key"`
	// State is [ControlAccepted], [ControlDone] or [ControlRefused]; empty while no leader has answered.
	State ControlState `json:"state,omitempty"`
	// Reason says, in words, why it was refused or what was done.
	Reason string `json:"reason,omitempty"`
	// By is the leader that answered, and At when, by its clock.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
}

// ControlState is the state of an order.
type ControlState = types.ControlState

// The states of an order that the leader has answered.
const (
	ControlAccepted = types.ControlAccepted
	ControlDone     = types.ControlDone
	ControlRefused  = types.ControlRefused
)

// ControlOption changes how an order is given.
type ControlOption func(*control)

type control struct {
	order    types.ControlOrder
	accepted bool
}

// WithOneByOne drains partitions one after the other: the next goes when the worker has returned the one before, or has not for its
// HandoffTimeout. Without it all go with one commit.
func WithOneByOne() ControlOption {
	return func(c *control) { c.order.Mode = types.DrainOneByOne }
}

// WithRequester notes in the order who gave it.
func WithRequester(name string) ControlOption {
	return func(c *control) { c.order.RequestedBy = name }
}

// WithoutWaiting returns when the leader has accepted the order, and does not wait until it is done.
func WithoutWaiting() ControlOption { return func(c *control) { c.accepted = true } }

// Drain has the leader move everything from the worker to others and give it nothing until [Undrain]. The worker stays up. The order
// survives changes of the leader, and restarts of the worker until it has been away for a day.
//
// It returns when the worker neither owns nor runs anything, or with [ErrRefused] and the reason: an unknown worker, the last one that can
// be given partitions, the only one that carries a label. If ctx ends before, the order stands all the same, and the
// answer says how far it has come; without a deadline it waits 30 s at most. An order that no leader has answered within ten minutes is
// void. [ErrNoGroup] says that nobody uses the namespace, [ErrOrderGone] that somebody has removed the order or put another one in its
// place. Anybody with access to the control bucket may call it, also from outside of the group.
func Drain(ctx context.Context, js jetstream.JetStream, namespace, worker string, opts ...ControlOption) (ControlAnswer, error) {
	return order(ctx, js, namespace, types.ControlOrder{Kind: types.ControlDrain, Worker: worker}, orderTTL, opts)
}

// Undrain ends a drain. It returns when the leader knows; the worker gets its share with the commit that follows. It is done for an ID that
// nobody has, too, since its drain may still stand: the answer's Reason says that nobody has it.
func Undrain(ctx context.Context, js jetstream.JetStream, namespace, worker string, opts ...ControlOption) (ControlAnswer, error) {
	return order(ctx, js, namespace, types.ControlOrder{Kind: types.ControlUndrain, Worker: worker}, orderTTL, opts)
}

// EvictWorker has the leader delete the worker's key: the worker ends what it runs with the cause [ErrLeaseExpired], and what it had
// goes to others. They start when it has come back, which it may only after everything has returned, or one HeartbeatTTL later.
// When it comes back it joins anew; drain it first if it is not to. It returns when what the worker had is given to others.
//
// It is refused for an unknown worker and for the last one that can be given partitions. A handler that ignores its context
// goes on after that HeartbeatTTL, beside the new owner's: only the fencing token stops it.
func EvictWorker(ctx context.Context, js jetstream.JetStream, namespace, worker string, opts ...ControlOption) (ControlAnswer, error) {
	return order(ctx, js, namespace, types.ControlOrder{Kind: types.ControlEvictWorker, Worker: worker}, orderTTL, opts)
}

// EvictPartition has the leader give one partition of the worker to another one, and keep it off the worker, as long as this one
// runs, for an hour. It returns when the commit is made. The new owner starts when the handler has returned, or
// under its higher epoch after its HandoffTimeout: an eviction does not shorten that, since nobody but the worker can end a handler that
// hangs. [EvictWorker] can, as far as that is possible.
func EvictPartition(ctx context.Context, js jetstream.JetStream, namespace, worker string, partition Partition, opts ...ControlOption) (ControlAnswer, error) {
	return order(ctx, js, namespace,
		types.ControlOrder{Kind: types.ControlEvictPartition, Worker: worker, Partition: partition.ID()}, orderTTL, opts)
}

// Drain drains this worker, see the function [Drain].
func (m *Manager) Drain(ctx context.Context, opts ...ControlOption) (ControlAnswer, error) {
	if err := m.takesOrders(); err != nil {
		return ControlAnswer{}, err
	}
	return Drain(ctx, m.js, m.set.Namespace, m.WorkerID(), opts...)
}

// Undrain ends the drain of this worker, see the function [Undrain].
func (m *Manager) Undrain(ctx context.Context, opts ...ControlOption) (ControlAnswer, error) {
	if err := m.takesOrders(); err != nil {
		return ControlAnswer{}, err
	}
	return Undrain(ctx, m.js, m.set.Namespace, m.WorkerID(), opts...)
}

// takesOrders reports why an order for this worker would come to nothing, or lie in wait for another process.
func (m *Manager) takesOrders() error {
	switch s := m.State(); {
	case s >= types.StateStopping:
		return ErrStopped
	case m.WorkerID() == "":
		return ErrNotStarted
	}
	return nil
}

const (
	// orderTTL is how long an order waits for a leader. One that nobody has acted on by then is void: what it was about is past.
	orderTTL = 10 * time.Minute
	// orderWait is how long its answer is waited for where the context has no deadline.
	orderWait = 30 * time.Second
	// orderPoll is how often an answer is looked for without being heard.
	orderPoll = time.Second
	// orderTries bounds how often an order is written over one that changes meanwhile.
	orderTries = 5
)

// order writes an order and waits for its answer.
func order(ctx context.Context, js jetstream.JetStream, namespace string, o types.ControlOrder, ttl time.Duration, opts []ControlOption) (ControlAnswer, error) {
	c := control{order: o}
	for _, opt := range opts {
		if opt == nil {
			return ControlAnswer{}, fmt.Errorf("%w: an option is nil", ErrInvalidConfig)
		}
		opt(&c)
	}
	c.order.At = time.Now().UTC()
	key := types.ControlKey(o.Kind, o.Worker, uuid.NewString())
	value, err := c.order.Encode()
	if err != nil {
		return ControlAnswer{}, err
	}
	if _, err := types.DecodeControlOrder(key, value); err != nil {
		return ControlAnswer{}, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, orderWait)
		defer cancel()
	}
	buckets, err := openGroup(ctx, js, namespace)
	if err != nil {
		return ControlAnswer{}, err
	}
	heard := make(chan *nats.Msg, 16)
	if sub, err := js.Conn().ChanSubscribe(kv.LiveSubject(namespace, key), heard); err == nil { // else it is looked for
		defer func() { _ = sub.Unsubscribe() }()
	}
	revision, err := writeOrder(ctx, buckets.Control, key, value, ttl)
	if err != nil {
		return ControlAnswer{Key: key}, unanswered(js, err)
	}
	return c.await(ctx, buckets.Control, key, revision, heard)
}

// writeOrder writes the order over whatever is there, and returns its revision.
func writeOrder(ctx context.Context, store *kv.Store, key string, value []byte, ttl time.Duration) (uint64, error) {
	var err error
	for range orderTries {
		var before, at uint64
		switch e, getErr := store.Get(ctx, key); {
		case getErr == nil:
			before = e.Revision
		case !errors.Is(getErr, kv.ErrNotFound):
			return 0, getErr
		}
		at, err = store.Put(ctx, key, value, before, ttl)
		if err == nil {
			return at, nil
		}
		if !kv.IsConflict(err) {
			return 0, err // ErrOutcomeUnknown among them: to give the order again does no harm
		}
	}
	return 0, err
}

// await waits until the order of this revision is answered.
func (c *control) await(ctx context.Context, store *kv.Store, key string, revision uint64, heard <-chan *nats.Msg) (ControlAnswer, error) {
	answer := ControlAnswer{Key: key}
	poll := time.NewTicker(orderPoll)
	defer poll.Stop()
	for {
		select {
		case <-heard:
		case <-poll.C:
		case <-ctx.Done():
			if answer.State == "" {
				return answer, fmt.Errorf("parti: no leader has answered the order yet: %w", ctx.Err())
			}
			return answer, fmt.Errorf("parti: the order is accepted and not done yet: %w", ctx.Err())
		}
		e, err := store.Get(ctx, key)
		switch {
		case errors.Is(err, nats.ErrConnectionClosed):
			return answer, unanswered(store.JetStream(), err)
		case err != nil, e.Revision <= revision:
			continue // not answered, an old state, or no answer from the server; ctx bounds it
		case e.Absent():
			return answer, fmt.Errorf("%w: %s was deleted, or has expired unanswered", ErrOrderGone, key)
		}
		o, err := types.DecodeControlOrder(key, e.Value)
		if err != nil || o.Kind != c.order.Kind && o.State != types.ControlRefused || !o.At.Equal(c.order.At) || o.State == types.ControlOpen {
			return answer, fmt.Errorf("%w: another one has taken its place under %s", ErrOrderGone, key)
		}
		answer = ControlAnswer{Key: key, State: o.State, Reason: o.Reason, By: o.By, At: o.AnsweredAt}
		switch {
		case o.State == types.ControlRefused:
			return answer, fmt.Errorf("%w: %s", ErrRefused, o.Reason)
		case o.State == types.ControlDone, c.accepted:
			return answer, nil
		}
	}
}
