package kv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestReplicated(t *testing.T) {
	natstest.Long(t)
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

// subscribed returns a subscription to the live subjects of these keys that all servers know.
func subscribed(t *testing.T, cluster *natstest.Cluster, keys string) *nats.Subscription {
	t.Helper()
	c := cluster.Connect("sub")
	sub, err := c.Conn().SubscribeSync(kv.LiveSubject(ns, keys))
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	cluster.WaitSubscribed(c)
	return sub
}

// Writers race with batches and single writes from all servers; every revision that a batch reports is the one stored.
func replicatedBatches(t *testing.T, cluster *natstest.Cluster, cfg kv.BucketConfig) {
	const writers, rounds, size = 6, 20, 5
	sub := subscribed(t, cluster, "*.*")
	leader := cluster.StreamLeader("KV_" + kv.ControlBucket(ns))
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		claimed   = map[uint64]string{}
		disturbed atomic.Bool // an answer was lost
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
				if _, _, err := definite(func() ([]uint64, error) { return s.Batch(t.Context(), bad) }); !kv.IsConflict(err) {
					t.Errorf("expected a conflict: %v", err)
				}
				if _, _, err := definite(func() (uint64, error) { return s.Put(t.Context(), "all.contend", nil, 0, 0) }); kv.IsConflict(err) {
					conflicts++
				} else if err != nil {
					t.Error(err)
				}
				next, lost, err := definite(func() ([]uint64, error) { return s.Batch(t.Context(), writes) })
				if lost {
					disturbed.Store(true)
				}
				if lost && kv.IsConflict(err) { // nobody else writes these keys, so it had landed
					last := atLeader(t, cluster, s, writes[size-1].Key)
					next, err = []uint64{last - 4, last - 3, last - 2, last - 1, last}, nil
				}
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
	patience, seen := clusterPatience, 0
	// A server that becomes the leader does not republish what the one before has stored.
	if disturbed.Load() || cluster.StreamLeader("KV_"+kv.ControlBucket(ns)) != leader {
		patience = 5 * time.Second
	}
	for seen < writers*rounds*size {
		m, err := sub.NextMsg(patience)
		if err != nil && patience < clusterPatience {
			t.Logf("after a change of the leader: %d of %d heard", seen, writers*rounds*size)
			break
		}
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

// clusterPatience is for how long a stream may have no leader, with a new election whenever servers get no processor time.
const clusterPatience = 2 * time.Minute

// definite repeats a write until it is known what came of it. lost says that the answer to an earlier try was lost, so that a conflict may be with
// that one.
func definite[T any](write func() (T, error)) (v T, lost bool, err error) {
	for end := time.Now().Add(clusterPatience); ; time.Sleep(20 * time.Millisecond) {
		v, err = write()
		if !errors.Is(err, kv.ErrUnavailable) && !kv.IsUnknown(err) || time.Now().After(end) {
			return v, lost, err
		}
		lost = lost || kv.IsUnknown(err)
	}
}

// atLeader returns the key's revision as the leader of the stream knows it, which is the last one.
func atLeader(t *testing.T, cluster *natstest.Cluster, s *kv.Store, key string) (revision uint64) {
	t.Helper()
	cluster.Repeat(func(ctx context.Context) error {
		ask := fmt.Appendf(nil, `{"last_by_subj":"$KV.%s.%s"}`, s.Bucket(), key)
		m, err := s.JetStream().Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.Stream(), ask)
		if err != nil {
			return err
		}
		var answer struct{ Message struct{ Seq uint64 } }
		if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Message.Seq == 0 {
			return fmt.Errorf("%s %w", m.Data, err)
		}
		revision = answer.Message.Seq
		return nil
	})
	return revision
}

func replicatedExpiry(t *testing.T, cluster *natstest.Cluster, b kv.Buckets) {
	sub := subscribed(t, cluster, "heartbeat.*")
	next := func(key string) (kv.Entry, error) {
		for {
			m, err := sub.NextMsg(30 * time.Second)
			if err != nil {
				return kv.Entry{}, err
			}
			e, err := kv.ParseLive(ns, m)
			require.NoError(t, err)
			if e.Key == key {
				return e, nil
			}
		}
	}
	for n := range 10 {
		leader, key := cluster.StreamLeader(b.Heartbeat.Stream()), fmt.Sprintf("heartbeat.%d", n)
		start := time.Now() // what a lease is counted from
		if _, err := b.Heartbeat.Create(t.Context(), key, nil, 0); err != nil {
			t.Log(err) // the key may be there all the same, so the next try takes another one
			continue
		}
		e, err := next(key)
		if err == nil {
			require.Equal(t, kv.Put, e.Op)
			e, err = next(key)
		}
		if err != nil {
			t.Logf("server %d led, %d does: a leader, or one that leads again, does not republish what was stored before: %v",
				leader, cluster.StreamLeader(b.Heartbeat.Stream()), err)
			continue
		}
		require.Equal(t, kv.Expire, e.Op)
		t.Logf("R3 file: expiry after %v of %v", time.Since(start), b.Heartbeat.HeartbeatTTL())
		require.GreaterOrEqual(t, time.Since(start), b.Heartbeat.HeartbeatTTL(), "never before its time")
		// Who heard the marker writes over it, whatever the replica that Create would read knows.
		again, lost, err := definite(func() (uint64, error) { return b.Heartbeat.Put(t.Context(), key, nil, e.Revision, 0) })
		if !lost || !kv.IsConflict(err) {
			require.NoError(t, err)
			require.Greater(t, again, e.Revision)
		}
		return
	}
	t.Error("the stream never kept its leader for long enough")
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
	var s *kv.Store
	leader, tries := 0, 0
	for led := false; !led; tries++ { // the leader may change just before it is cut off
		require.Less(t, tries, 10, "the leader does not stay one, or says more of a write than it can know")
		leader = cluster.StreamLeader(b.Control.Stream())
		s = replicated(t, cluster, cluster.Connect("x", leader), cfg).Control
		cluster.Isolate(leader)
		// The old leader takes the write and cannot finish it.
		_, put := s.Put(within(t, time.Second), "outage.a", nil, 0, 0)
		_, batch := s.Batch(within(t, time.Second), []kv.Write{{Key: "outage.b"}, {Key: "outage.c"}})
		_, list := s.List(within(t, time.Second), "list.*")
		sent := kv.IsUnknown(put) && kv.IsUnknown(batch) // not if the process stood still for so long
		led = sent && slices.Contains(cluster.StreamLeaders(b.Control.Stream()), leader)
		cluster.Heal(leader)
		if !led {
			cluster.WaitReady()
			continue
		}
		require.ErrorIs(t, list, types.ErrPartialListing)
	}
	cluster.WaitFor(clusterPatience, "writes", func() bool {
		_, err := s.Create(within(t, time.Second), "outage.d", nil, 0)
		return err == nil || kv.IsConflict(err) // an earlier try may have landed
	})
}

// A replicated bucket looks at its limits before it proposes a write, so a refusal is as definite there.
func replicatedFull(t *testing.T, cluster *natstest.Cluster, cfg kv.BucketConfig) {
	cfg.Namespace = "full"
	c := cluster.Connect("full")
	s := replicated(t, cluster, c, cfg).Control
	fullBucket(t, c, s, func(key string) uint64 { return atLeader(t, cluster, s, key) })
}
