package heartbeat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

const testTTL, testInterval = 8 * time.Second, 2 * time.Second

// worker is a publisher with everything around it replaced by a recorder.
type worker struct {
	t      *testing.T
	client *natstest.Client
	store  *kv.Store
	lease  *Lease
	pub    *Publisher

	mu       sync.Mutex
	claims   []types.Holder
	fences   []error
	stored   []types.Heartbeat
	last     error // the last trouble
	over     bool  // the incarnation is fenced
	returned chan struct{}
}

func newWorker(t *testing.T, env *natstest.Env, name, id string) *worker {
	return newWorkerBeside(t, env, name, id, time.Time{})
}

// newWorkerBeside makes a worker that finds a commit stored at the given time.
func newWorkerBeside(t *testing.T, env *natstest.Env, name, id string, commit time.Time) *worker {
	w := &worker{t: t, client: env.Connect(name)}
	b, err := kv.EnsureBuckets(context.Background(), w.client.JS(), kv.BucketConfig{
		Namespace: "t", HeartbeatTTL: testTTL, Replicas: 1, Storage: jetstream.MemoryStorage, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w.store = b.Heartbeat
	timing := DefaultTiming(testTTL, testInterval)
	w.lease = NewLease(timing)
	w.pub = New(Config{
		Store: w.store, Timing: timing, Lease: w.lease, ID: id, Pool: "worker",
		CommitCreated: func(context.Context) (time.Time, error) { return commit, nil },
		Compose:       w.compose,
		Claimed:       func(h types.Holder) { w.locked(func() { w.claims, w.over = append(w.claims, h), false }) },
		Stored:        func(h types.Heartbeat, _ uint64, _ time.Time) { w.locked(func() { w.stored = append(w.stored, h) }) },
		Fenced:        w.fenced,
		Trouble:       func(err error, _ int) { w.locked(func() { w.last = err }) },
		Metrics:       types.NopMetrics{}, Logger: slog.New(slog.DiscardHandler),
	})
	// What the feed does in a Manager.
	sub, err := w.client.Conn().Subscribe(kv.LiveSubject("t", "heartbeat.*"), func(m *nats.Msg) {
		if e, err := kv.ParseLive("t", m); err == nil && e.Key == KeyPrefix+w.id() {
			w.pub.Observe(e)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		w.pub.Close()
		_ = sub.Unsubscribe()
	})
	w.pub.Start()
	return w
}

func (w *worker) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *worker) compose(h *types.Heartbeat) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.Capabilities, h.State = types.CapAckV1, types.WorkerActive
	return !w.over
}

func (w *worker) fenced(cause error) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fences, w.over, w.returned = append(w.fences, cause), true, make(chan struct{})
	return w.returned
}

// expireLikeTheRuntime fences when the lease runs out, as the runtime's timer does.
func (w *worker) expireLikeTheRuntime() {
	w.locked(func() { w.over = true })
	w.pub.Fence(w.holder().Incarnation, types.ErrLeaseExpired)
}

func (w *worker) returnEverything() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.returned)
}

func (w *worker) holder() types.Holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.claims) == 0 {
		return types.Holder{}
	}
	return w.claims[len(w.claims)-1]
}

func (w *worker) id() string { return w.holder().Worker }

func (w *worker) count() (claims, fences int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.claims), len(w.fences)
}

func (w *worker) trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *worker) key(id string) (kv.Entry, types.Heartbeat) {
	e, err := w.store.Get(context.Background(), KeyPrefix+id)
	require.NoError(w.t, err)
	h, err := types.DecodeHeartbeat(id, e.Value)
	require.NoError(w.t, err)
	return e, h
}

func TestClaimAndRenew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() == "pod-1" })
		first, h := w.key("pod-1")
		require.Equal(t, types.ClaimedNothing, h.ClaimedOver)
		require.Equal(t, types.WorkerJoining, h.State)
		time.Sleep(10 * testTTL)
		now, h := w.key("pod-1")
		require.Equal(t, w.holder().Incarnation, h.Incarnation)
		require.Equal(t, types.WorkerActive, h.State)
		require.InDelta(t, int(10*testTTL/testInterval), int(now.Revision-first.Revision), 1, "one write per interval")
		require.True(t, w.lease.Valid())
	})
}

func TestNotifyIsSoonAndShared(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		before, _ := w.key("pod-1")
		for range 100 {
			w.pub.Notify()
		}
		time.Sleep(10 * time.Millisecond)
		after, _ := w.key("pod-1")
		require.Equal(t, uint64(1), after.Revision-before.Revision)
	})
}

// The runtime's lease timer ends the incarnation; the process claims again only when everything has returned, over its own key.
func TestFenceWaitsForEverythingToReturn(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		w.client.Gate().Hold(natstest.FromServer)
		env.WaitFor(testTTL, "the lease runs out", func() bool { return !w.lease.Valid() })
		w.expireLikeTheRuntime()
		env.WaitFor(testInterval, "fenced", func() bool { _, fences := w.count(); return fences == 1 })
		w.client.Gate().Heal()
		time.Sleep(500 * time.Millisecond) // the key has not expired yet
		claims, _ := w.count()
		require.Equal(t, 1, claims, "nothing is claimed before everything has returned")
		w.returnEverything()
		env.WaitFor(testTTL, "claimed again", func() bool { claims, _ := w.count(); return claims == 2 })
		_, h := w.key("pod-1")
		require.Contains(t, []types.ClaimedOver{types.ClaimedOwn, types.ClaimedExpiry}, h.ClaimedOver)
		require.True(t, w.lease.Valid())
	})
}

// A write whose answer is lost has landed: its nonce is found under the key, nothing is fenced, and the lease counts from when
// that write was sent.
func TestLostAnswerIsResolvedByReadingBack(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		for range 5 {
			w.pub.Notify()
			time.Sleep(2*time.Millisecond + 150*time.Microsecond) // the request is on its way
			w.client.Gate().Drop()                                // and its answer lost with the connection
			time.Sleep(3 * time.Second)
		}
		claims, fences := w.count()
		require.Equal(t, 1, claims)
		require.Zero(t, fences)
		require.NoError(t, w.trouble(), "all is well again")
	})
}

func TestKeyInForeignHandsEndsTheIncarnation(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		e, _ := w.key("pod-1")
		thief := types.Heartbeat{WorkerID: "pod-1", Incarnation: "thief", SchemaVersion: 1, Capabilities: types.CapAckV1, State: types.WorkerActive, Nonce: "1"}
		data, err := thief.Encode()
		require.NoError(t, err)
		_, err = w.store.Put(context.Background(), e.Key, data, e.Revision, 0)
		require.NoError(t, err)
		env.WaitFor(100*time.Millisecond, "fenced at once, by the live feed", func() bool { _, fences := w.count(); return fences == 1 })
		w.returnEverything()
		env.WaitFor(2*testTTL, "claimed again after the expiry", func() bool { claims, _ := w.count(); return claims == 2 })
		_, h := w.key("pod-1")
		require.Equal(t, types.ClaimedExpiry, h.ClaimedOver)
	})
}

// A key that is gone without an expiry may belong to somebody who still runs: the claim waits one TTL, and says `nothing`.
func TestClaimOverADeletedKeyWaits(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		operator := newWorker(t, env, "operator", "other")
		env.WaitFor(time.Second, "claimed", func() bool { return operator.id() != "" })
		rev, err := operator.store.Put(context.Background(), KeyPrefix+"pod-1", []byte(`{"worker_id":"pod-1","incarnation":"old","schema_version":1,"capabilities":1}`), 0, 0)
		require.NoError(t, err)
		_, err = operator.store.Delete(context.Background(), KeyPrefix+"pod-1", rev)
		require.NoError(t, err)
		began := time.Now()
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(2*testTTL, "claimed", func() bool { return w.id() != "" })
		require.GreaterOrEqual(t, time.Since(began), testTTL)
		_, h := w.key("pod-1")
		require.Equal(t, types.ClaimedNothing, h.ClaimedOver)
	})
}

// A heartbeat bucket that is younger than the commit beside it has lost keys: nothing there proves anything.
func TestClaimInAYoungBucketWaits(t *testing.T) {
	for _, id := range []string{"pod-1", ""} {
		t.Run("id="+id, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				began := time.Now()
				w := newWorkerBeside(t, env, "a", id, began.Add(-time.Hour))
				env.WaitFor(2*testTTL, "claimed", func() bool { return w.id() != "" })
				require.GreaterOrEqual(t, time.Since(began), testTTL)
			})
		})
	}
}

func TestPooledStartersSpread(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		const n = 60
		var workers []*worker
		for range n {
			workers = append(workers, newWorker(t, env, "w", ""))
		}
		ids := map[string]bool{}
		for _, w := range workers {
			env.WaitFor(2*time.Second, "claimed", func() bool { return w.id() != "" })
			ids[w.id()] = true
		}
		require.Len(t, ids, n, "no ID twice")
		require.Contains(t, ids, "worker-0")
	})
}

func TestLeaveSaysGoodbyeAndFreesTheID(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		require.NoError(t, w.pub.Leave(context.Background(), types.WorkerLeft))
		require.NoError(t, w.pub.Leave(context.Background(), types.WorkerLeft), "twice is once")
		_, h := w.key("pod-1")
		require.Equal(t, types.WorkerLeft, h.State)
		next := newWorker(t, env, "b", "pod-1")
		env.WaitFor(100*time.Millisecond, "claimed at once", func() bool { return next.id() != "" })
		_, h = next.key("pod-1")
		require.Equal(t, types.ClaimedLeft, h.ClaimedOver)
	})
}

func TestLeaveWhileTheServerIsGone(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		w.client.Gate().Cut()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, w.pub.Leave(ctx, types.WorkerLeft), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
	})
}

func TestGarbageUnderTheKeyIsTaken(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		other := newWorker(t, env, "operator", "other")
		env.WaitFor(time.Second, "claimed", func() bool { return other.id() != "" })
		_, err := other.store.Put(context.Background(), KeyPrefix+"pod-1", []byte("garbage"), 0, 0)
		require.NoError(t, err)
		w := newWorker(t, env, "a", "pod-1")
		env.WaitFor(testInterval, "it says so", func() bool { return errors.Is(w.trouble(), types.ErrWorkerIDTaken) })
		require.ErrorContains(t, w.trouble(), "no heartbeat")
		env.WaitFor(2*testTTL, "claimed after the expiry", func() bool { return w.id() != "" })
	})
}
