package assignment

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// incompressible returns n partitions of 180 random bytes each: some 3,000 of one worker need chunks.
func incompressible(n int) []types.Partition {
	ps := make([]types.Partition, n)
	random := rand.NewChaCha8([32]byte{})
	for i := range ps {
		b := make([]byte, 180)
		random.Read(b)
		ps[i] = types.NewPartition(base64.RawURLEncoding.EncodeToString(b))
	}
	return ps
}

// payloadOf returns what the publisher would store for the slice of the worker.
func payloadOf(t *testing.T, state *plan.State, i int) packed {
	raw, err := record.EncodePayload(state.Slices[i].Entries)
	require.NoError(t, err)
	root, chunks, err := record.Pack(raw)
	require.NoError(t, err)
	return packed{record.Hash(raw), root, chunks}
}

func TestAdoptionTouches(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		count := &pubCounter{}
		p, _, _ := g.leadOn(env.Connect("a"), counted(count))
		state := spread(p.NextVersion(), 1, 1, partitions(4))
		root := payloadOf(t, state, 0).root
		before, err := g.store.Put(t.Context(), root.Key, root.Value, 0, 0)
		require.NoError(t, err)
		g.publish(p, state)
		e, err := g.store.Get(t.Context(), root.Key)
		require.NoError(t, err)
		require.Greater(t, e.Revision, before)
		require.Equal(t, pubCounter{adopted: 1, published: 1}, *count)
		_, err = g.store.Delete(t.Context(), root.Key, before)
		require.ErrorIs(t, err, kv.ErrConflict, "a deletion at the revision seen before the adoption loses")
	})
}

// Somebody deletes a value, at the revision at which he saw it, at every moment of its adoption. Either the deletion is refused,
// or the value is created again.
func TestAdoptionAgainstRacingDelete(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, _, _ := g.leadOn(c, func(c *PublisherConfig) { c.Parallelism = 1 })
		c.Gate().Delay(10 * time.Millisecond)
		var won, refused int
		for i, over := 0, false; !over; i++ {
			state := spread(p.NextVersion(), int64(i+1), 1, partitions(4))
			root := payloadOf(t, state, 0).root
			seen, err := g.store.Put(t.Context(), root.Key, root.Value, 0, 0)
			require.NoError(t, err)
			deleted := make(chan error, 1)
			timer := time.AfterFunc(time.Duration(i)*10*time.Millisecond+5*time.Millisecond, func() {
				_, err := g.store.Delete(context.Background(), root.Key, seen)
				deleted <- err
			})
			g.publish(p, state)
			timer.Stop()
			synctest.Wait()
			select {
			case err := <-deleted:
				if err == nil {
					won++
				} else {
					require.ErrorIs(t, err, kv.ErrConflict)
					refused++
				}
			default: // the publish was over before the deletion
				over = true
			}
			g.readable()
		}
		require.NotZero(t, won)
		require.NotZero(t, refused)
	})
}

func TestDamagedValueIsRepaired(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 1, incompressible(3_200))
		blob := payloadOf(t, state, 0)
		require.Greater(t, len(blob.chunks), 1)
		g.overwrite(blob.root.Key, []byte("damage"))
		g.overwrite(blob.chunks[0].Key, []byte("damage"))
		g.publish(p, state)
		g.readable()
	})
}

// A value that goes bad again and again, faster than it can be repaired.
func TestDamageThatCannotBeRepaired(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, l, _ := g.leadOn(c)
		state := spread(p.NextVersion(), 1, 1, partitions(4))
		key := payloadOf(t, state, 0).root.Key
		g.overwrite(key, []byte("damage"))
		c.Gate().Delay(10 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for backoff.Sleep(ctx, 5*time.Millisecond) == nil {
				_, _ = g.store.Batch(ctx, []kv.Write{{Key: key, Value: []byte("damage"), Any: true}})
			}
		}()
		_, err := p.Publish(t.Context(), input(state))
		cancel()
		<-ended
		require.ErrorIs(t, err, ErrPayloadHashCollisionOrCorruption)
		require.Zero(t, l.commits)
		require.Empty(t, p.LiveRefs())
	})
}

func TestChunkedPayload(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, incompressible(6_400))
		g.publish(p, state)
		require.Greater(t, len(g.keys(record.ChunkPrefix)), 2)
		g.readable()
		_, _, got := g.leadOn(env.Connect("b"))
		requireState(t, state, got)
	})
}

func TestValueOverTheServersLimitIsNamedBeforeAnythingIsWritten(t *testing.T) {
	small := natstest.WithServerOptions(func(o *server.Options) { o.MaxPayload = 256 << 10 })
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, l, _ := g.leadOn(env.Connect("a"))
		state := spread(p.NextVersion(), 1, 2, incompressible(3_200))
		_, err := p.Publish(t.Context(), input(state))
		require.ErrorIs(t, err, types.ErrPayloadTooLarge)
		require.Empty(t, g.keys(record.PayloadPrefix))
		require.Empty(t, g.keys(record.ChunkPrefix))
		require.Zero(t, l.commits)
		g.publish(p, spread(state.Version, 1, 2, incompressible(100)))
	}, small)
}

// Acknowledgements of values get lost: what was stored is found again.
func TestUnknownOutcomeOfAValue(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		c := env.Connect("a")
		p, _, _ := g.leadOn(c, func(c *PublisherConfig) { c.RequestTimeout = 200 * time.Millisecond })
		state := spread(p.NextVersion(), 1, 20, partitions(40))
		c.Gate().Lose(natstest.FromServer)
		heal := time.AfterFunc(300*time.Millisecond, c.Gate().Heal)
		defer heal.Stop()
		g.publish(p, state)
		g.readable()
	})
}

// The leader's process dies at any moment of a publish: the commit is the former or the new one as a whole, and the next leader
// goes on with higher versions and moves nothing.
func TestCrashAtEveryStepOfAPublish(t *testing.T) {
	natstest.Long(t)
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		first, _, _ := g.leadOn(env.Connect("first"))
		// 40 workers: payloads, two shards, and a parked list.
		want := spread(first.NextVersion(), 1, 40, partitions(80))
		version := g.publish(first, want).Version

		var old, landed int
		for step := 0; landed < 3; step++ {
			require.Less(t, step, 200)
			c := env.Connect(fmt.Sprintf("crash-%d", step))
			p, _, state := g.leadOn(c, func(c *PublisherConfig) { c.Parallelism = 1 })
			requireState(t, want, state)
			next := touch(touch(want, p.NextVersion(), step%40), p.NextVersion(), (step+7)%40)
			next.Parked = []types.ParkedEntry{{AssignmentEntry: types.AssignmentEntry{Partition: types.NewPartition(fmt.Sprint("x", step))}}}
			c.Gate().Delay(5 * time.Millisecond)
			result := make(chan error, 1)
			go func() {
				_, err := p.Publish(context.Background(), input(next))
				result <- err
			}()
			wait := time.NewTimer(time.Duration(step)*2*time.Millisecond + time.Millisecond)
			<-wait.C
			c.Kill()
			err := <-result

			commit, _ := g.readable()
			switch commit.Version {
			case version:
				old++
				require.Error(t, err)
			case next.Version:
				landed++
				want, version = next, next.Version
			default:
				t.Fatalf("commit %d is neither %d nor %d", commit.Version, version, next.Version)
			}
			_, logErr := g.store.Get(t.Context(), record.LogKey(next.Version))
			require.Equal(t, commit.Version != next.Version, errors.Is(logErr, kv.ErrNotFound), "commit and log go together")
		}
		require.Greater(t, old, 15)
		p, _, state := g.leadOn(env.Connect("last"))
		requireState(t, want, state)
		require.Greater(t, p.NextVersion(), version)
		require.Equal(t, version, p.CurrentVersion())
	})
}
