package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// Row 7: the buckets of an earlier life hold thousands of stale keys, some rewritten many times: the start stays short.
func TestStartOverThousandsOfStaleKeys(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := context.Background()
		memory := parti.WithStorage(jetstream.MemoryStorage)
		first := manager(t, env.Connect("first").JS(), memory)
		require.NoError(t, first.Start(ctx))
		require.NoError(t, first.WaitReady(ctx))
		require.NoError(t, first.Stop(ctx))

		js := env.Connect("litter").JS()
		for i := range 5000 {
			blob := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i)))
			_, err := js.PublishAsync("$KV.orders-control.assignment._payload."+blob, []byte("old"))
			require.NoError(t, err)
			beat := fmt.Sprintf(`{"worker_id":"old-%d","incarnation":"i","schema_version":1,"capabilities":7,"state":"left","claimed_over":"nothing","nonce":"n"}`, i%3000)
			_, err = js.PublishAsync(fmt.Sprintf("$KV.orders-heartbeat.heartbeat.old-%d", i%3000), []byte(beat))
			require.NoError(t, err)
			if i%500 == 499 {
				<-js.PublishAsyncComplete()
			}
		}
		<-js.PublishAsyncComplete()

		began := time.Now()
		second := manager(t, env.Connect("second").JS(), memory)
		require.NoError(t, second.Start(ctx))
		require.NoError(t, second.WaitReady(ctx))
		require.True(t, second.IsLeader())
		t.Logf("ready after %v", time.Since(began))
		require.Less(t, time.Since(began), 5*time.Second)
		require.NoError(t, second.Stop(ctx))
	})
}

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
