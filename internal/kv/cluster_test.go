package kv_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/kv"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestReplicated(t *testing.T) {
	cluster := natstest.NewCluster(t, 3)
	cfg := memory()
	cfg.Replicas, cfg.Storage, cfg.HeartbeatTTL = 3, jetstream.FileStorage, 2*time.Second
	b := replicated(t, cluster, cluster.Connect("a"), cfg)
	t.Run("revisions of batches", func(t *testing.T) { replicatedBatches(t, cluster, cfg) })
	t.Run("expiry", func(t *testing.T) { replicatedExpiry(t, cluster, b) })
	t.Run("list", func(t *testing.T) { replicatedList(t, cluster, b) })
	t.Run("full", func(t *testing.T) { replicatedFull(t, cluster, cfg) })
	t.Run("no leader", func(t *testing.T) { replicatedOutage(t, cluster, b, cfg) }) // stops servers: the last one
}

func replicated(t *testing.T, cluster *natstest.Cluster, c *natstest.Client, cfg kv.BucketConfig) (b kv.Buckets) {
	t.Helper()
	cluster.Repeat(func(ctx context.Context) (err error) {
		b, err = kv.EnsureBuckets(ctx, c.JS(), cfg)
		return err
	})
	return b
}

// Writers race with batches and single writes from all servers; every revision that a batch reports is the one stored.
func replicatedBatches(t *testing.T, cluster *natstest.Cluster, cfg kv.BucketConfig) {
	const writers, rounds, size = 6, 20, 5
	sub, err := cluster.Connect("sub").Conn().SubscribeSync(kv.LiveSubject(ns, "*.*"))
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	cluster.WaitInterest(kv.LiveSubject(ns, "all.contend"))
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		claimed = map[uint64]string{}
	)
	for w := range writers {
		s := replicated(t, cluster, cluster.Connect("w", w%3), cfg).Control
		wg.Go(func() {
			revs := make([]uint64, size)
			conflicts := 0
			for round := range rounds {
				writes := make([]kv.Write, size)
				for i := range writes {
					writes[i] = kv.Write{Key: fmt.Sprintf("w%d.%d", w, i), Value: []byte(fmt.Sprint(round)), Expect: revs[i]}
				}
				writes[round%size].Delete = true
				// A batch that must fail in between, and a write that all contend for.
				bad := append([]kv.Write{{Key: fmt.Sprintf("w%d.new%d", w, round)}}, writes...)
				bad[1].Expect++
				if _, err := available(func() ([]uint64, error) { return s.Batch(t.Context(), bad) }); !kv.IsConflict(err) {
					t.Errorf("expected a conflict: %v", err)
				}
				if _, err := available(func() (uint64, error) { return s.Put(t.Context(), "all.contend", nil, 0, 0) }); kv.IsConflict(err) {
					conflicts++
				} else if err != nil {
					t.Error(err)
				}
				next, err := available(func() ([]uint64, error) { return s.Batch(t.Context(), writes) })
				if err != nil {
					t.Error(err)
					return
				}
				revs = next
				mu.Lock()
				for i, rev := range next {
					claimed[rev] = writes[i].Key
				}
				mu.Unlock()
			}
			if conflicts < rounds-1 {
				t.Errorf("writer %d: only %d conflicts", w, conflicts)
			}
		})
	}
	wg.Wait()
	seen := 0
	for seen < writers*rounds*size {
		m, err := sub.NextMsg(30 * time.Second)
		require.NoError(t, err, "after %d", seen)
		e, err := kv.ParseLive(ns, m)
		require.NoError(t, err)
		if e.Key == "all.contend" {
			continue
		}
		require.Equal(t, claimed[e.Revision], e.Key, "revision %d", e.Revision)
		seen++
	}
}

// available repeats a write while the stream has no leader, for 20 s: then nothing was written.
func available[T any](write func() (T, error)) (T, error) {
	for end := time.Now().Add(20 * time.Second); ; {
		v, err := write()
		if !errors.Is(err, kv.ErrUnavailable) || time.Now().After(end) {
			return v, err
		}
	}
}

func replicatedExpiry(t *testing.T, cluster *natstest.Cluster, b kv.Buckets) {
	sub, err := cluster.Connect("sub").Conn().SubscribeSync(kv.LiveSubject(ns, "heartbeat.*"))
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	cluster.WaitInterest(kv.LiveSubject(ns, "heartbeat.a"))
	var start time.Time // what a lease is counted from
	_, err = available(func() (uint64, error) {
		start = time.Now()
		return b.Heartbeat.Create(t.Context(), "heartbeat.a", nil, 0)
	})
	require.NoError(t, err)
	_, err = sub.NextMsg(30 * time.Second)
	require.NoError(t, err)
	m, err := sub.NextMsg(30 * time.Second)
	require.NoError(t, err)
	e, err := kv.ParseLive(ns, m)
	require.NoError(t, err)
	require.Equal(t, kv.Expire, e.Op)
	t.Logf("R3 file: expiry after %v of %v", time.Since(start), b.Heartbeat.HeartbeatTTL())
	require.GreaterOrEqual(t, time.Since(start), b.Heartbeat.HeartbeatTTL(), "never before its time")
	// Who heard the marker writes over it, whatever the replica that Create would read knows.
	again, err := available(func() (uint64, error) { return b.Heartbeat.Put(t.Context(), "heartbeat.a", nil, e.Revision, 0) })
	require.NoError(t, err)
	require.Greater(t, again, e.Revision)
}

func replicatedList(t *testing.T, cluster *natstest.Cluster, b kv.Buckets) {
	fill(t, b.Control, "list", 200)
	short := 0
	for range 20 {
		var l map[string]kv.Entry
		cluster.Repeat(func(ctx context.Context) (err error) {
			l, err = b.Control.List(ctx, "list.*")
			return err
		})
		if len(l) < 200 { // its replica lags: the doc says so
			short++
		}
	}
	t.Logf("%d of 20 listings were of a lagging replica", short)
}

func replicatedOutage(t *testing.T, cluster *natstest.Cluster, b kv.Buckets, cfg kv.BucketConfig) {
	leader := cluster.StreamLeader(b.Control.Stream())
	s := replicated(t, cluster, cluster.Connect("x", leader), cfg).Control
	cluster.Isolate(leader)
	// The old leader takes the write and cannot finish it.
	_, err := s.Put(within(t, 500*time.Millisecond), "outage.a", nil, 0, 0)
	require.True(t, kv.IsUnknown(err), err)
	_, err = s.Batch(within(t, 500*time.Millisecond), []kv.Write{{Key: "outage.b"}, {Key: "outage.c"}})
	require.True(t, kv.IsUnknown(err), err)
	_, err = s.List(within(t, 500*time.Millisecond), "list.*")
	require.ErrorIs(t, err, types.ErrPartialListing)
	cluster.Heal(leader)
	cluster.WaitFor(30*time.Second, "writes", func() bool {
		_, err := s.Create(within(t, time.Second), "outage.d", nil, 0)
		return err == nil || kv.IsConflict(err) // an earlier try may have landed
	})
}

// A replicated bucket looks at its limits before it proposes a write, so a refusal is as definite there.
func replicatedFull(t *testing.T, cluster *natstest.Cluster, cfg kv.BucketConfig) {
	cfg.Namespace = "full"
	c := cluster.Connect("full")
	fullBucket(t, c, replicated(t, cluster, c, cfg).Control)
}
