package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// handoff is the HandoffTimeout of groups with plain workers, which cannot acknowledge.
const handoff = 8 * time.Second

var shortHandoff = grouptest.Manager(parti.WithHandoffTimeout(handoff))

// even reports whether every partition runs, and the plain workers and the others have the same share.
func even(g *grouptest.Group, plain ...*grouptest.PlainWorker) bool {
	if g.Oracle.Idle() > 0 {
		return false
	}
	n := g.Counts()
	least, most := 1<<30, 0
	for _, w := range plain {
		n[w.ID] = w.Running()
	}
	for _, c := range n {
		least, most = min(least, c), max(most, c)
	}
	return most-least <= 1
}

func aliasesStored(t *testing.T, g *grouptest.Group) map[string]int64 {
	t.Helper()
	bucket, err := kv.OpenStore(context.Background(), g.Leader().Client.JS(), kv.ControlBucket(grouptest.Namespace), time.Minute)
	require.NoError(t, err)
	entries, err := bucket.List(context.Background(), "assignment.*")
	require.NoError(t, err)
	found := map[string]int64{}
	for key, e := range entries {
		var a struct {
			WorkerID string `json:"worker_id"`
			Version  int64  `json:"version"`
		}
		if e.Absent() || key == "assignment._commit" {
			continue
		}
		require.NoError(t, json.Unmarshal(e.Value, &a))
		require.Equal(t, "assignment."+a.WorkerID, key)
		found[a.WorkerID] = a.Version
	}
	return found
}

// A group of both kinds: plain workers get their share in the batch of each commit, take part in scaling, and those that die are
// replaced, whether their keys expire by themselves or not.
func TestMixedGroup(t *testing.T) {
	natstest.Long(t)
	for _, keyTTL := range []bool{true, false} {
		t.Run(fmt.Sprintf("keys with a TTL: %v", keyTTL), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				a, b := g.StartPlain("plain-a", ttl, keyTTL), g.StartPlain("plain-b", ttl, keyTTL)
				g.Start(2)
				g.WaitFor(20*time.Second, "an even share each", func() bool { return even(g, a, b) })
				c, _ := g.Checker.LastCommit()
				require.Equal(t, map[string]int64{"plain-a": c.Version, "plain-b": c.Version}, aliasesStored(t, g), "in the batch of the commit")
				starts := g.Oracle.Starts()
				g.Sleep(time.Minute)
				require.Equal(t, starts, g.Oracle.Starts(), "nothing moves in a quiet minute")

				g.Start(1)
				g.WaitFor(handoff+15*time.Second, "the new worker has its share", func() bool { return even(g, a, b) })

				began := time.Now()
				b.Kill()
				took := g.WaitFor(5*ttl, "what it had runs elsewhere", func() bool { return even(g, a) })
				limit := ttl + announced + ttl // plain-a waits with what an earlier owner may be ending
				if !keyTTL {
					limit += ttl + 3*time.Second // the others look every 3 s whether it has been silent for a HeartbeatTTL
				}
				require.LessOrEqual(t, took, limit)
				t.Logf("repaired %v after the death", time.Since(began))
				g.WaitFor(5*time.Second, "its alias is swept", func() bool { return len(aliasesStored(t, g)) == 1 })
			}, fast, shortHandoff, grouptest.Partitions(30))
		})
	}
}

// The leader dies in a mixed group: the next one goes on with the plain workers as they are.
func TestMixedGroupLosesItsLeader(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		a := g.StartPlain("plain-a", ttl, true)
		g.Start(3)
		g.WaitFor(20*time.Second, "an even share each", func() bool { return even(g, a) })
		before := a.Running()
		g.Leader().Kill()
		g.WaitFor(ttl+leadTerm+2*ttl, "all runs again", func() bool { return even(g, a) })
		require.GreaterOrEqual(t, a.Running(), before)
	}, fast, shortHandoff, grouptest.Partitions(30))
}

// A rolling upgrade, and back: each process is replaced by one of the other kind with the same ID.
func TestRollingUpgradeAndBack(t *testing.T) {
	for _, keyTTL := range []bool{true, false} {
		t.Run(fmt.Sprintf("keys with a TTL: %v", keyTTL), func(t *testing.T) {
			grouptest.Bubble(t, func(g *grouptest.Group) {
				g.Start(1, parti.WithWorkerID("pod-0"))
				old := []*grouptest.PlainWorker{g.StartPlain("pod-1", ttl, keyTTL), g.StartPlain("pod-2", ttl, keyTTL)}
				g.WaitFor(20*time.Second, "an even share each", func() bool { return even(g, old...) })

				for i, w := range old {
					w.Kill()
					g.Start(1, parti.WithWorkerID(w.ID))
					g.WaitFor(handoff+10*time.Second, "the upgraded worker has its share", func() bool { return even(g, old[i+1:]...) })
				}
				g.WaitFor(5*time.Second, "no alias is left", func() bool { return len(aliasesStored(t, g)) == 0 })

				for _, id := range []string{"pod-1", "pod-2"} {
					for _, w := range g.Live() {
						if w.ID() == id {
							w.Stop()
						}
					}
					p := g.StartPlain(id, ttl, keyTTL)
					g.WaitFor(handoff+15*time.Second, "the downgraded worker has its share", func() bool { return p.Running() > 0 && g.Oracle.Idle() == 0 })
				}
				require.Len(t, aliasesStored(t, g), 2)
			}, fast, shortHandoff, grouptest.Partitions(30))
		})
	}
}

// A plain worker that lives and has lost a partition cannot say that it has stopped: the new owner waits for HandoffTimeout.
func TestPlainWorkerThatLivesHoldsUpTheHandoff(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		a := g.StartPlain("plain-a", ttl, true)
		g.Start(1)
		g.WaitFor(20*time.Second, "an even share each", func() bool { return even(g, a) })
		g.Start(1)
		g.WaitFor(5*time.Second, "the commit takes something away", func() bool { return a.Running() == 10 })
		g.Sleep(handoff - 2*time.Second)
		require.Equal(t, 5, g.Oracle.Idle(), "what it had is still waited for")
		g.WaitFor(3*time.Second, "all runs", func() bool { return even(g, a) })
	}, fast, shortHandoff, grouptest.Partitions(30))
}

// A plain worker that says JSON may say goodbye: what it had moves at once.
func TestPlainWorkerMayLeave(t *testing.T) {
	grouptest.Bubble(t, func(g *grouptest.Group) {
		a := g.StartPlain("plain-a", ttl, true)
		g.Start(2)
		g.WaitFor(20*time.Second, "an even share each", func() bool { return even(g, a) })
		nc := g.Follower().Client.JS()
		a.Kill()
		left, err := json.Marshal(types.Heartbeat{WorkerID: "plain-a", SchemaVersion: 1, State: types.WorkerLeft})
		require.NoError(t, err)
		_, err = nc.Publish(context.Background(), "$KV.test-heartbeat.heartbeat.plain-a", left, jetstream.WithMsgTTL(ttl))
		require.NoError(t, err)
		require.LessOrEqual(t, g.WaitAllRunning(time.Second), 200*time.Millisecond)
	}, fast, shortHandoff, grouptest.Partitions(30))
}
