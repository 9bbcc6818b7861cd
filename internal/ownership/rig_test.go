package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

const testTTL = 15 * time.Second

// rig is a runtime with everything around it replaced: the store is a map, and heartbeats are stored when the test says so.
type rig struct {
	t  *testing.T
	rt *Runtime
	me types.Holder

	mu       sync.Mutex
	until    time.Time
	keys     map[string]kv.Entry
	rev      uint64
	stale    bool // a fresh look shows an old own heartbeat
	followed []string
	notified int
	expired  []string
	events   []string
	release  map[string]chan struct{} // handlers of these partitions return only when told to
	forced   []string
	overdue  []string
	failures []error
}

// withRig runs f in virtual time.
func withRig(t *testing.T, f func(r *rig), change ...func(*Config)) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		r := &rig{t: t, me: types.Holder{Worker: "me", Incarnation: "i1"}, keys: map[string]kv.Entry{}, release: map[string]chan struct{}{}}
		cfg := Config{
			Handler: r.handle, DrainTimeout: 30 * time.Second, HandoffTimeout: 45 * time.Second, FenceGrace: time.Second, HeartbeatTTL: testTTL,
			Lease: r, Observer: r, Notify: func() { r.locked(func() { r.notified++ }) },
			Failed:  func(err error) { r.locked(func() { r.failures = append(r.failures, err) }) },
			Expired: func(i string) { r.locked(func() { r.expired = append(r.expired, i) }) },
			Metrics: rigMetrics{r: r}, Logger: slog.New(slog.DiscardHandler),
		}
		for _, c := range change {
			c(&cfg)
		}
		r.rt = New(cfg)
		r.rt.Start()
		r.renew(testTTL)
		r.rt.Begin(r.me)
		t.Cleanup(func() {
			r.mu.Lock()
			for id := range r.release {
				r.let(id)
			}
			r.mu.Unlock()
			<-r.rt.Drain()
			require.Empty(t, r.rt.Stop(context.Background()))
		})
		f(r)
	})
}

type rigMetrics struct {
	types.NopMetrics
	r *rig
}

func (m rigMetrics) HandoffForced(p string) {
	m.r.locked(func() { m.r.forced = append(m.r.forced, p) })
}

func (m rigMetrics) HandlerOverdue(p string) {
	m.r.locked(func() { m.r.overdue = append(m.r.overdue, p) })
}

func (r *rig) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Lease.
func (r *rig) Left() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.until)
}
func (r *rig) Valid() bool { return r.Left() > 0 }

func (r *rig) renew(d time.Duration) { r.locked(func() { r.until = time.Now().Add(d) }) }

// Observer.
func (r *rig) Fresh(_ context.Context, workers []string) (map[string]kv.Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]kv.Entry{}
	for _, w := range workers {
		if e, ok := r.keys[w]; ok {
			if w == r.me.Worker && r.stale {
				e.Revision = 0
			}
			out[w] = e
		}
	}
	return out, nil
}

func (r *rig) Last(_ context.Context, workers []string) map[string]kv.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]kv.Entry{}
	for _, w := range workers {
		if e, ok := r.keys[w]; ok {
			out[w] = e
		}
	}
	return out
}

func (r *rig) Follow(workers []string) error {
	r.locked(func() { r.followed = workers })
	return nil
}

// handle notes when a run starts and ends; it ignores its context as long as the test wants.
func (r *rig) handle(ctx context.Context, o types.Ownership) error {
	id := o.Partition.ID()
	r.note("start %s %d", id, o.Epoch)
	<-ctx.Done()
	r.mu.Lock()
	hold := r.release[id]
	r.mu.Unlock()
	r.note("cancel %s %d: %v", id, o.Epoch, context.Cause(ctx))
	if hold != nil {
		<-hold
	}
	r.note("return %s %d", id, o.Epoch)
	return nil
}

func (r *rig) note(format string, args ...any) {
	r.locked(func() { r.events = append(r.events, fmt.Sprintf(format, args...)) })
}

// take returns what has happened since the last call, once everything is at rest.
func (r *rig) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events
	r.events = nil
	return e
}

// hold makes the handler of the partition ignore the end of its context.
func (r *rig) hold(id string) { r.locked(func() { r.release[id] = make(chan struct{}) }) }

func (r *rig) letGo(id string) { r.locked(func() { r.let(id) }) }

func (r *rig) let(id string) {
	close(r.release[id])
	delete(r.release, id)
}

func entry(id string, epoch int64, from ...types.From) types.AssignmentEntry {
	return types.AssignmentEntry{Partition: types.NewPartition(id), Epoch: epoch, From: from}
}

func from(worker, incarnation string, version int64) types.From {
	return types.From{Holder: types.Holder{Worker: worker, Incarnation: incarnation}, Version: version}
}

func (r *rig) apply(version int64, entries ...types.AssignmentEntry) {
	r.t.Helper()
	require.True(r.t, r.rt.Apply(Commit{Holder: r.me, Version: version, Entries: entries, Digest: "d"}))
}

// beat composes a heartbeat and stores it.
func (r *rig) beat() types.Heartbeat {
	h := r.compose()
	r.store(h)
	return h
}

func (r *rig) compose() types.Heartbeat {
	h := types.Heartbeat{WorkerID: r.me.Worker, Incarnation: r.me.Incarnation, Nonce: fmt.Sprint(time.Now(), r.rev)}
	r.rt.Compose(&h)
	return h
}

func (r *rig) store(h types.Heartbeat) {
	r.renew(testTTL)
	rev := r.set(h)
	r.rt.Stored(h, rev)
	synctest.Wait()
}

// set puts a heartbeat under its worker's key.
func (r *rig) set(h types.Heartbeat) uint64 {
	h.SchemaVersion, h.Capabilities = types.HeartbeatSchema, types.CapAckV1
	data, err := h.Encode()
	require.NoError(r.t, err)
	return r.put(h.WorkerID, kv.Entry{Value: data})
}

func (r *rig) put(worker string, e kv.Entry) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rev++
	e.Key, e.Revision = "heartbeat."+worker, r.rev
	if e.Created.IsZero() {
		e.Created = time.Now()
	}
	r.keys[worker] = e
	return r.rev
}

// hears stores and delivers a heartbeat of another worker.
func (r *rig) hears(h types.Heartbeat) {
	r.set(h)
	r.mu.Lock()
	e := r.keys[h.WorkerID]
	r.mu.Unlock()
	r.rt.Heard(h.WorkerID, e)
	synctest.Wait()
}

func other(incarnation string, applied int64, unreturned ...types.Run) types.Heartbeat {
	return types.Heartbeat{WorkerID: "other", Incarnation: incarnation, AppliedVersion: applied, State: types.WorkerActive, Unreturned: unreturned}
}

// seen is a copy of what was recorded, taken when everything is at rest.
type seen struct {
	notified                           int
	followed, expired, forced, overdue []string
}

func (r *rig) seen() seen {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return seen{r.notified, slices.Clone(r.followed), slices.Clone(r.expired), slices.Clone(r.forced), slices.Clone(r.overdue)}
}
