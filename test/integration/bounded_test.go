package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/checker"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// Row 7: the buckets of an earlier life hold thousands of stale keys. A start lists the heartbeats, and asks for none of the stale keys by itself.
// Time in a bubble would not show a start that does: so requests and bytes are counted.
func TestStartOverThousandsOfStaleKeys(t *testing.T) {
	natstest.Long(t)
	const blobs, beats = 5000, 3000
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := context.Background()
		memory := parti.WithStorage(jetstream.MemoryStorage)
		watch := checker.Attach(t, env.Connect("witness").Conn(), "orders", checker.Ignoring(litter...))
		lead := func(name string) nats.Statistics {
			c := env.Connect(name)
			before := c.Conn().Stats()
			m := manager(t, c.JS(), memory)
			require.NoError(t, m.Start(ctx))
			require.NoError(t, m.WaitReady(ctx))
			require.True(t, m.IsLeader())
			now := c.Conn().Stats()
			require.NoError(t, m.Stop(ctx))
			return nats.Statistics{
				OutMsgs: now.OutMsgs - before.OutMsgs, InMsgs: now.InMsgs - before.InMsgs,
				OutBytes: now.OutBytes - before.OutBytes, InBytes: now.InBytes - before.InBytes,
			}
		}
		lead("first")
		clean := lead("second")

		js, size := env.Connect("litter").JS(), 0
		for i := range blobs {
			blob := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i)))
			_, err := js.PublishAsync("$KV.orders-control.assignment._payload."+blob, []byte("old"))
			require.NoError(t, err)
			beat := fmt.Sprintf(`{"worker_id":"old-%d","incarnation":"i","schema_version":1,"capabilities":7,"state":"left","claimed_over":"nothing","nonce":"n"}`, i%beats)
			_, err = js.PublishAsync(fmt.Sprintf("$KV.orders-heartbeat.heartbeat.old-%d", i%beats), []byte(beat))
			require.NoError(t, err)
			if i < beats {
				size += len(beat)
			}
			if i%500 == 499 {
				<-js.PublishAsyncComplete()
			}
		}
		<-js.PublishAsyncComplete()
		watch.Sync()

		began := time.Now()
		stale := lead("third")
		t.Logf("%v; over few keys: %d requests, %d messages, %d bytes; over %d stale ones: %d requests, %d messages, %d bytes", time.Since(began),
			clean.OutMsgs, clean.InMsgs, clean.InBytes, blobs+beats, stale.OutMsgs, stale.InMsgs, stale.InBytes)
		require.LessOrEqual(t, stale.OutMsgs, clean.OutMsgs+20, "the requests do not grow with the stale keys")
		require.LessOrEqual(t, stale.InMsgs, clean.InMsgs+2*beats+50, "the heartbeats are listed twice, for an ID and to lead; of the values nothing is read")
		require.LessOrEqual(t, stale.InBytes, clean.InBytes+uint64(2*(size+beats*200)), "about their size")
	})
}

// litter are the rules that stale keys break which somebody else has written.
var litter = []checker.Rule{checker.BlobForm, checker.Unguarded, checker.HeartbeatForm, checker.HeartbeatClaim}

// Row 12: the hook that is told of a lost lead sleeps for a minute. Nothing is published by the former leader meanwhile, another leads, and
// the former one follows it.
func TestDemotionHookThatSleeps(t *testing.T) {
	var asleep, woken atomic.Int32
	hooks := parti.Hooks{OnLeadershipLost: func(parti.Leadership) {
		if asleep.Add(1) == 1 { // later ones are those of the end
			time.Sleep(time.Minute)
			woken.Add(1)
		}
	}}
	grouptest.Bubble(t, func(g *grouptest.Group) {
		g.Start(3, parti.WithHooks(hooks))
		g.WaitAllRunning(10 * time.Second)
		former := g.Leader()
		former.Cut()
		g.WaitFor(10*time.Second, "it knows by its own clock", func() bool { return asleep.Load() == 1 })
		require.False(t, former.Manager.IsLeader())
		g.WaitFor(10*time.Second, "another leads", func() bool { return g.Leader() != former })
		former.Heal() // not before: it may contend again, and win
		for i := range 8 {
			g.SetPartitions(5*time.Second, grouptest.Numbered(21+i)...)
			g.Sleep(5 * time.Second)
			require.False(t, former.Manager.IsLeader())
			require.Zero(t, woken.Load())
		}
		last, ok := g.Checker.LastCommit()
		require.True(t, ok)
		g.WaitFor(5*time.Second, "the former leader follows", func() bool { return former.Manager.Status().AppliedVersion == last.Version })
		g.WaitAllRunning(5 * time.Second) // the checker has judged who published what
	}, fast, grouptest.Partitions(20))
}
