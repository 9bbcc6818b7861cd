package consumer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A partition whose lag no move can even out makes no commits, once what can move away from its reader has.
func TestLagAwareComesToRest(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		var commits, forLag atomic.Int64
		counting := WithManagerOptions(parti.WithHooks(parti.Hooks{OnRebalanceEnded: func(r parti.Rebalance) {
			commits.Add(1)
			if r.Reason == types.LifecyclePartitions {
				forLag.Add(1)
			}
		}}))
		lag := WithLagAware(LagAware{MinLag: 50})
		members := []*member{w.join(lag, counting), w.join(lag, counting), w.join(lag, counting)}
		for _, m := range members {
			m.Pause(5)
			m.process()
		}
		w.waitOwned(10 * time.Second)
		w.publish(400, 5)
		time.Sleep(5 * time.Minute)
		require.Positive(t, forLag.Load(), "the lag was noticed")
		for _, m := range members {
			if mine := m.Assigned(); slices.Contains(mine, 5) {
				require.Equal(t, []int{5}, mine, "everything else went elsewhere")
			}
		}
		before := commits.Load()
		time.Sleep(10 * time.Minute)
		require.Equal(t, before, commits.Load())
	})
}

// changes counts how often the leader is told to think again in so many looks, and has it do so.
func (w *lagWorld) changes(t *testing.T, looks int, each func(i int)) (n int) {
	t.Helper()
	for i := range looks {
		time.Sleep(10 * time.Second)
		each(i)
		if w.f.look(t.Context()) {
			n++
			w.assign(t)
		}
	}
	return n
}

// New weights alone are no reason for a commit.
func TestLagAwareWeightsThatMoveNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{}, 9, 3)
		w.assign(t)
		grow := func(i int) { w.lags["004"] = uint64(10_000 + 1000*i) }
		require.LessOrEqual(t, w.changes(t, 60, grow), 2, "a commit for each of its neighbours, at one a minute")
		require.Equal(t, 1, w.counts()[w.owners["004"]])
		require.Zero(t, w.changes(t, 360, func(i int) { w.lags["004"] = uint64(10_000 + 5000*(i/6%10)) }))
	})
}

// What was not allowed to move in this minute moves in the next ones, though weights are the same.
func TestLagAwareGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{HalfLife: -1}, 9, 3)
		w.assign(t)
		w.lags["004"] = 100_000
		require.Equal(t, 2, w.changes(t, 30, func(int) {}), "one for each of its neighbours")
		require.Equal(t, 1, w.counts()[w.owners["004"]])
	})
}

// What a worker has no room for is not tried again and again.
func TestLagAwareHeedsCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{}, 8, 3)
		for i := range w.workers {
			w.workers[i].Capacity = types.Capacity{Partitions: 3}
		}
		w.assign(t)
		hot := ""
		for _, p := range w.f.list { // of a worker that has three
			if id := p.ID(); hot == "" && w.counts()[w.owners[id]] == 3 {
				hot = id
			}
		}
		w.lags[hot] = 100_000
		require.Equal(t, 1, w.changes(t, 60, func(int) {}), "one has room for one")
		require.Equal(t, map[int]int{2: 1, 3: 2}, sizes(w.counts()))
		require.Equal(t, 2, w.counts()[w.owners[hot]])
	})
}

// sizes counts how many have how many.
func sizes(counts map[string]int) map[int]int {
	n := map[int]int{}
	for _, c := range counts {
		n[c]++
	}
	return n
}

// The default threshold is a fifth of the mean load: 19 % more on one of four workers moves nothing, 22 % does.
func TestLagAwareThreshold(t *testing.T) {
	for hot, moves := range map[int]bool{6: false, 7: true} {
		t.Run(fmt.Sprint(hot, " of 25"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newLagWorld(LagAware{}, 100, 4)
				w.assign(t)
				n := 0
				for _, p := range w.f.list { // weights are 97 and, with the default MinLag as the mean, 208
					if id := p.ID(); w.owners[id] == "w0" && n < hot {
						w.lags[id] = 1000
						n++
					}
				}
				require.Equal(t, moves, w.changes(t, 120, func(int) {}) > 0)
			})
		})
	}
}

// The default lets a tenth of the partitions go in a minute, and begins anew with another leader.
func TestLagAwareMovesPerMinute(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{}, 100, 4)
		w.assign(t)
		for p, id := range w.owners {
			if id == "w0" {
				w.lags[p] = 100_000
			}
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, 10, w.assign(t))
		time.Sleep(10 * time.Second)
		require.Zero(t, w.assign(t))
		other := newLagWorld(LagAware{}, 100, 4)
		other.lags, other.owners = w.lags, w.owners
		require.Positive(t, other.assign(t))
	})
}

// Settings that are negative say none.
func TestLagAwareWithout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lagging := func(l LagAware) *lagWorld {
			w := newLagWorld(l, 20, 2)
			w.assign(t)
			for p, id := range w.owners {
				if id == "w0" {
					w.lags[p] = 100_000
				}
			}
			return w
		}
		w := lagging(LagAware{MovesPerMinute: -1})
		require.Zero(t, w.changes(t, 60, func(int) {}))
		w.workers = append(w.workers, types.Worker{ID: "w2"})
		require.Positive(t, w.assign(t), "who is new has a part all the same")

		w = newLagWorld(LagAware{Threshold: -1, MinLag: 1, HalfLife: -1}, 20, 2)
		w.assign(t)
		n := 0
		for p, id := range w.owners { // 5 % more
			if id == "w0" && n < 1 {
				w.lags[p] = 1
				n++
			}
		}
		time.Sleep(10 * time.Second)
		require.True(t, w.f.look(t.Context()))
		require.InDelta(t, 1, w.f.average[w.lagger()], 0, "at once")
		require.Positive(t, w.assign(t))
	})
}

// lagger returns the one partition that lags.
func (w *lagWorld) lagger() string {
	for p := range w.lags {
		return p
	}
	return ""
}
