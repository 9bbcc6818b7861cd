package consumer

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// lagWorld is a leader's view without a server: lags are what the test says.
type lagWorld struct {
	f       *lagFollower
	lags    map[string]uint64
	workers []types.Worker
	owners  map[string]string
}

func newLagWorld(cfg LagAware, partitions, workers int) *lagWorld {
	w := &lagWorld{lags: map[string]uint64{}, owners: map[string]string{}}
	list := make([]types.Partition, partitions)
	for p := range list {
		list[p] = types.NewPartition(fmt.Sprintf("%03d", p))
	}
	for i := range workers {
		w.workers = append(w.workers, types.Worker{ID: fmt.Sprintf("w%d", i)})
	}
	w.f = newLagFollower(cfg, list, func(context.Context) (map[string]uint64, error) { return w.lags, nil })
	return w
}

// assign makes one commit and returns how many partitions changed their owner.
func (w *lagWorld) assign(t *testing.T) (moved int) {
	ps, err := w.f.ListPartitions(t.Context())
	require.NoError(t, err)
	in := types.AssignmentInput{Workers: w.workers, Partitions: ps, Previous: make([]int, len(ps))}
	for i, p := range ps {
		in.Previous[i] = types.NoOwner
		for j, worker := range w.workers {
			if w.owners[p.ID()] == worker.ID {
				in.Previous[i] = j
			}
		}
	}
	owners, err := w.f.Assign(t.Context(), in)
	require.NoError(t, err)
	for i, p := range ps {
		id := w.workers[owners[i]].ID
		if was, ok := w.owners[p.ID()]; ok && was != id {
			moved++
		}
		w.owners[p.ID()] = id
	}
	return moved
}

func (w *lagWorld) counts() map[string]int {
	n := map[string]int{}
	for _, id := range w.owners {
		n[id]++
	}
	return n
}

func TestLagAwareBounds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{}, 100, 4)
		require.Zero(t, w.assign(t))
		require.Equal(t, map[string]int{"w0": 25, "w1": 25, "w2": 25, "w3": 25}, w.counts())
		time.Sleep(10 * time.Second)
		for p := range 100 { // an even lag, however large, moves nothing
			w.lags[fmt.Sprintf("%03d", p)] = 1_000_000
		}
		for range 30 {
			time.Sleep(10 * time.Second)
			require.Zero(t, w.assign(t))
		}
		for p, id := range w.owners { // a fifth more on one worker moves nothing either
			if id == "w0" {
				w.lags[p] = 1_200_000
			}
		}
		for range 60 {
			time.Sleep(10 * time.Second)
			require.Zero(t, w.assign(t))
		}
		for p, id := range w.owners {
			if id == "w0" {
				w.lags[p] = 20_000_000
			}
		}
		var moves []time.Time
		for range 120 {
			time.Sleep(10 * time.Second)
			n := w.assign(t)
			for range n {
				moves = append(moves, time.Now())
			}
			inAMinute := 0
			for _, at := range moves {
				if time.Since(at) < time.Minute {
					inAMinute++
				}
			}
			require.LessOrEqual(t, inAMinute, 10)
		}
		t.Logf("%d moves, %v", len(moves), w.counts())
		require.NotEmpty(t, moves)
		require.False(t, w.f.placement(w.f.placed).uneven(0.2))
	})
}

func TestLagAwareHalfLife(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{HalfLife: time.Minute}, 2, 1)
		w.assign(t)
		w.lags["000"] = 1000
		for range 6 {
			time.Sleep(10 * time.Second)
			w.f.look(t.Context())
		}
		require.InDelta(t, 500, w.f.average["000"], 1)
		require.Zero(t, math.Round(w.f.average["001"]))
	})
}

func TestLagAwareNewWorkerAndDeath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{}, 90, 8)
		w.assign(t)
		w.workers = append(w.workers, types.Worker{ID: "w8"})
		require.Equal(t, 10, w.assign(t))
		require.Equal(t, 10, w.counts()["w8"])
		w.workers = w.workers[:8]
		require.Equal(t, 10, w.assign(t), "of the dead only")
	})
}

func TestLagAwareGroup(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		a, b := w.join(WithLagAware(LagAware{MinLag: 50})), w.join(WithLagAware(LagAware{MinLag: 50}))
		a.process()
		b.process()
		w.waitRead(10 * time.Second)
		require.Len(t, a.Assigned(), 4)
		a.Pause() // its partitions fall behind
		for range 12 {
			w.publish(100, a.Assigned()...)
			time.Sleep(10 * time.Second)
		}
		require.Less(t, len(a.Assigned()), 4)
		a.Resume()
		w.waitRead(20 * time.Second)
		require.Zero(t, w.ledger.again())
	})
}

// inBubble is virtual time without a server.
func inBubble(t *testing.T, f func(t *testing.T)) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) { f(t) })
}
