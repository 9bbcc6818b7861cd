package parti

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/heartbeat"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	// inspectTries bounds how often a commit is read anew because a newer one has taken its place meanwhile.
	inspectTries = 3
	// inspectReads is how many payloads are read at the same time.
	inspectReads = 16
)

// openGroup opens the buckets of a group for somebody who is not part of it.
func openGroup(ctx context.Context, js jetstream.JetStream, namespace string) (kv.Buckets, error) {
	if js == nil {
		return kv.Buckets{}, fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", ErrInvalidConfig)
	}
	if fault := nameFault(namespace, 32); fault != "" {
		return kv.Buckets{}, fmt.Errorf("%w: namespace %q %s", ErrInvalidConfig, namespace, fault)
	}
	buckets, err := kv.OpenBuckets(ctx, js, namespace)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return kv.Buckets{}, fmt.Errorf("%w: %q has not both of the streams KV_%s and KV_%s: check the namespace, and the account of the connection",
			ErrNoGroup, namespace, kv.ControlBucket(namespace), kv.HeartbeatBucket(namespace))
	}
	return buckets, unanswered(js, err)
}

// unanswered says of an error by which a request got no answer whether that is for good, and who did not answer.
func unanswered(js jetstream.JetStream, err error) error {
	nc := js.Conn()
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", ErrConnectionClosed, err)
	case !kv.IsTimeout(err), errors.Is(err, ErrPermission):
		return err
	}
	who := "asked was " + nc.ConnectedUrlRedacted()
	if !nc.IsConnected() {
		who = fmt.Sprintf("the connection to %s is %v", strings.Join(nc.Servers(), ", "), nc.Status())
	}
	if errors.Is(err, ErrNoServer) {
		return fmt.Errorf("%s: %w", who, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrNoServer, who, err)
}

// Inspect looks at a group from outside: it joins nothing and writes nothing. The keys are read one after the other, and reads of a
// replicated bucket may be a little old, so the View is what was true within the last moments, not at one.
//
// [ErrNoGroup] says that the namespace has no buckets, [ErrForeignBucket] that streams of their names are somebody else's, [ErrNoServer] and
// [ErrConnectionClosed] that nobody was asked. Where
// something that is stored cannot be read, the View has the rest, and the error, which wraps [ErrMalformed], names each such key.
// It takes the reading half of a worker's permissions.
func Inspect(ctx context.Context, js jetstream.JetStream, namespace string) (View, error) {
	buckets, err := openGroup(ctx, js, namespace)
	if err != nil {
		return View{}, err
	}
	i := inspection{
		control: buckets.Control, beats: buckets.Heartbeat, workers: map[string]*WorkerView{},
		v: View{Namespace: namespace, HeartbeatTTL: buckets.Heartbeat.HeartbeatTTL()},
	}
	for _, look := range []func(context.Context) error{i.leader, i.commit, i.heartbeats, i.orders} {
		if err := look(ctx); err != nil {
			return View{}, fmt.Errorf("parti: inspect %q: %w", namespace, unanswered(js, err))
		}
	}
	return i.finish()
}

// Groups returns the namespaces of all groups that have buckets in the account, sorted. It reads the streams' metadata.
func Groups(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	if js == nil {
		return nil, fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", ErrInvalidConfig)
	}
	names, err := kv.Namespaces(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("parti: list the groups: %w", unanswered(js, err))
	}
	return names, nil
}

// inspection is a View in the making.
type inspection struct {
	control, beats *kv.Store
	v              View
	workers        map[string]*WorkerView
	faults         []error
}

func (i *inspection) fault(key string, err error) {
	i.faults = append(i.faults, fmt.Errorf("%w: %s: %w", ErrMalformed, key, err))
}

func (i *inspection) worker(id string) *WorkerView {
	w := i.workers[id]
	if w == nil {
		w = &WorkerView{ID: id, Role: RoleWorker}
		i.workers[id] = w
	}
	return w
}

// value reads a key; false: it has no value.
func (i *inspection) value(ctx context.Context, key string) (kv.Entry, bool, error) {
	e, err := i.control.Get(ctx, key)
	if errors.Is(err, kv.ErrNotFound) {
		return kv.Entry{}, false, nil
	}
	return e, err == nil && !e.Absent(), err
}

func (i *inspection) leader(ctx context.Context) error {
	e, there, err := i.value(ctx, election.Key)
	if !there {
		return err
	}
	info, err := election.DecodeInfo(e)
	if err != nil {
		i.fault(election.Key, err)
		return nil
	}
	i.v.Leader, i.v.Term = info.Holder, info.Revision
	return nil
}

// commit reads the commit and what it refers to. What a commit refers to may be gone when a newer one has taken its place.
func (i *inspection) commit(ctx context.Context) error {
	var fault error
	for range inspectTries {
		e, there, err := i.value(ctx, assignment.CommitKey)
		if !there {
			return err
		}
		c, err := record.DecodeCommit(e.Value)
		if err != nil {
			i.fault(assignment.CommitKey, err)
			return nil
		}
		if fault = i.read(ctx, &c); fault == nil {
			return nil
		}
		if kv.IsTimeout(fault) || errors.Is(fault, kv.ErrUnavailable) || ctx.Err() != nil { // says nothing about the commit
			return fault
		}
	}
	i.fault(assignment.CommitKey, fault)
	return nil
}

func (i *inspection) read(ctx context.Context, c *types.AssignmentCommit) error {
	get := record.StoreGetter(i.control)
	i.v.Version, i.v.Reason, i.v.At = c.Version, c.Lifecycle, c.PublishedAt
	if c.SourceRevisionKnown {
		i.v.SourceRevision = c.SourceRevision
	}
	refs, err := record.FetchIndex(ctx, get, c)
	if err != nil {
		return err
	}
	parked, err := record.FetchParked(ctx, get, c)
	if err != nil {
		return err
	}
	slices, err := payloads(ctx, get, refs)
	if err != nil {
		return err
	}
	for n, r := range refs {
		w := i.worker(r.WorkerID)
		w.Incarnation, w.Partitions = r.Incarnation, len(slices[n])
		if r.GraceUntil != 0 {
			w.GraceUntil = time.UnixMilli(r.GraceUntil).UTC()
		}
		for k := range slices[n] {
			p := &slices[n][k]
			i.v.Partitions = append(i.v.Partitions, PartitionView{ID: p.ID(), Label: p.Label, Owner: r.Holder(), Epoch: p.Epoch})
		}
	}
	for k := range parked {
		p := &parked[k]
		i.v.Parked = append(i.v.Parked, ParkedView{ID: p.ID(), Label: p.Label, Reason: p.Reason, Retired: p.Retired})
	}
	return nil
}

// payloads reads what the references refer to, several at a time.
func payloads(ctx context.Context, get record.Getter, refs []types.AssignmentPayloadRef) ([][]types.AssignmentEntry, error) {
	entries, errs := make([][]types.AssignmentEntry, len(refs)), make([]error, len(refs))
	var all sync.WaitGroup
	turn := make(chan struct{}, inspectReads)
	for n := range refs {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			payload, err := record.FetchAndVerifyCommitPayload(ctx, get, refs[n])
			entries[n], errs[n] = payload.Entries, err
		})
	}
	all.Wait()
	return entries, errors.Join(errs...)
}

func (i *inspection) heartbeats(ctx context.Context) error {
	entries, err := i.beats.List(ctx, heartbeat.KeyPrefix+"*")
	if err != nil {
		return err
	}
	for key, e := range entries {
		if e.Absent() {
			continue
		}
		id := strings.TrimPrefix(key, heartbeat.KeyPrefix)
		h, err := types.DecodeHeartbeat(id, e.Value)
		if err != nil {
			i.fault(key, err)
			w := i.worker(id)
			w.Fault, w.HeardAt = err.Error(), e.Created
			continue
		}
		if listed := i.workers[id]; h.State.Gone() && listed == nil && len(h.Unreturned) == 0 {
			continue // last words, which concern nobody
		}
		i.hear(i.worker(id), &h, e.Created)
	}
	return nil
}

func (i *inspection) hear(w *WorkerView, h *types.Heartbeat, at time.Time) {
	w.Incarnation, w.State, w.Labels, w.Capacity, w.Plain = h.Incarnation, h.State, h.Labels, h.Capacity, h.Plain()
	w.AppliedVersion, w.AppliedAt, w.Unreturned, w.HeardAt = h.AppliedVersion, h.AppliedAt, h.Unreturned, at
	if h.Role != "" {
		w.Role = h.Role
	}
	w.Behind = !w.Plain && !h.State.Gone() && h.AppliedVersion < i.v.Version
	if i.v.Leader != (types.Holder{}) && i.v.Leader == h.Holder() {
		w.Leading = true
		i.v.MaxWorkers = h.MaxWorkers
	}
}

func (i *inspection) orders(ctx context.Context) error {
	entries, err := i.control.List(ctx, types.ControlPrefix+"*")
	if err != nil {
		return err
	}
	for key, e := range entries {
		if e.Absent() {
			continue
		}
		o, err := types.DecodeControlOrder(key, e.Value)
		view := OrderView{Key: key, ControlOrder: o}
		if err != nil {
			i.fault(key, err)
			view.Fault = err.Error()
		} else if w := i.workers[o.Worker]; w != nil && o.Drains() {
			w.Drained = true
		}
		i.v.Orders = append(i.v.Orders, view)
	}
	return nil
}

// finish sorts what was found, and works out who stands by: the leader does it by the same rule.
func (i *inspection) finish() (View, error) {
	var targets []string
	kept := 0
	for id, w := range i.workers {
		takesPart := w.State == types.WorkerJoining || w.State == types.WorkerActive
		switch {
		case !w.GraceUntil.IsZero():
			kept++
		case takesPart && w.Role != RoleCoordinator && !w.Drained:
			targets = append(targets, id)
		}
	}
	if i.v.MaxWorkers > 0 {
		spare := targets
		if free := i.v.MaxWorkers - kept; free > 0 {
			spare = assignment.StandBy(free, targets, func(id string) int { return i.workers[id].Partitions })
		}
		for _, id := range spare {
			i.workers[id].StandingBy = true
		}
	}
	for _, w := range i.workers {
		i.v.Workers = append(i.v.Workers, *w)
	}
	slices.SortFunc(i.v.Workers, func(a, b WorkerView) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(i.v.Partitions, func(a, b PartitionView) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(i.v.Parked, func(a, b ParkedView) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(i.v.Orders, func(a, b OrderView) int { return strings.Compare(a.Key, b.Key) })
	return i.v, errors.Join(i.faults...)
}
