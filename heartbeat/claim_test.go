package heartbeat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The time that a claim waits over a deleted key counts from that delete, not from an earlier one, after which the owner came back.
func TestClaimWaitsAnewAfterEachDelete(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		a := newWorker(t, env, "a", "x")
		env.WaitFor(time.Second, "a has it", func() bool { return a.id() == "x" })
		b := newWorker(t, env, "b", "x")
		remove := func(fences int) {
			e, _ := a.key("x")
			_, err := a.store.Delete(context.Background(), KeyPrefix+"x", e.Revision)
			require.NoError(t, err)
			env.WaitFor(time.Second, "a is fenced", func() bool { _, n := a.count(); return n == fences })
		}
		remove(1)
		time.Sleep(testInterval) // b has seen that the key is gone
		a.returnEverything()
		env.WaitFor(time.Second, "a is back", func() bool { claims, _ := a.count(); return claims == 2 })
		time.Sleep(2 * testTTL)
		remove(2)
		time.Sleep(testTTL - 10*time.Millisecond)
		claims, _ := b.count()
		require.Zero(t, claims, "what a runs may not have returned")
		env.WaitFor(2*testInterval, "b has it", func() bool { return b.id() == "x" })
		a.returnEverything()
	})
}

// A plain worker may write the same text with each heartbeat. What shows that it lives is that it writes: as long as it does, its ID is not taken
// over, and whoever wants it is told so.
func TestIDOfALivePlainWorkerIsNotTaken(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		w := newWorker(t, env, "a", "pod-1") // it makes the bucket
		env.WaitFor(time.Second, "claimed", func() bool { return w.id() != "" })
		plain := env.Connect("plain").JS()
		beat := func() {
			_, err := plain.Publish(context.Background(), "$KV.t-heartbeat.heartbeat.js-1", []byte(`{"worker_id":"js-1","schema_version":1,"state":"active"}`))
			require.NoError(t, err)
		}
		beat()
		heir := newWorker(t, env, "b", "js-1")
		for range 20 {
			time.Sleep(testTTL / 5)
			beat()
		}
		claims, _ := heir.count()
		require.Zero(t, claims)
		require.ErrorIs(t, heir.trouble(), types.ErrWorkerIDTaken)
		require.ErrorContains(t, heir.trouble(), "a plain worker")
		silent := time.Now() // and its key has no TTL
		env.WaitFor(2*testTTL, "claimed", func() bool { return heir.id() != "" })
		require.GreaterOrEqual(t, time.Since(silent), testTTL)
		_, h := heir.key("js-1")
		require.Equal(t, types.ClaimedExpiry, h.ClaimedOver)
	})
}

// A replica that lags may show a holder's earlier write after its last one: that is no sign of life.
func TestOldReadIsNoRenewal(t *testing.T) {
	beat := types.Heartbeat{WorkerID: "w", Incarnation: "i", SchemaVersion: types.HeartbeatSchema, State: types.WorkerActive, ClaimedOver: types.ClaimedNothing}
	value, err := beat.Encode()
	require.NoError(t, err)
	at := time.Now()
	read := func(revision uint64, after time.Duration) kv.Entry {
		return kv.Entry{Key: KeyPrefix + "w", Value: value, Revision: revision, Created: at.Add(after)}
	}
	for name, c := range map[string]struct {
		then    kv.Entry
		renewed bool
	}{
		"the same":                      {read(10, time.Second), false},
		"written again":                 {read(11, 2*time.Second), true},
		"written again, clock set back": {read(11, 0), true},
		"in a bucket made anew":         {read(3, 2*time.Second), true},
	} {
		var r rivalry
		for _, e := range []kv.Entry{read(10, time.Second), read(9, 0), read(10, time.Second), read(9, 0)} {
			require.ErrorIs(t, r.judge("w", e), errWaiting)
		}
		since := r.since
		err := r.judge("w", c.then)
		require.Equal(t, c.renewed, errors.Is(err, types.ErrWorkerIDTaken), "%s: %v", name, err)
		require.Equal(t, c.renewed, r.since.After(since), name)
	}
}
