package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A partition that lags keeps its room under a capacity of weight: it is not parked, but what it shares its reader with goes elsewhere.
func TestLagAwareParksNothingForItsLag(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		opts := []Option{WithLagAware(LagAware{MinLag: 50, HalfLife: -1, MovesPerMinute: 1}), WithManagerOptions(parti.WithCapacity(0, 7*types.DefaultWeight))}
		members := []*member{w.join(opts...), w.join(opts...)}
		for _, m := range members {
			m.Pause(0)
			m.process()
		}
		w.waitOwned(10 * time.Second)
		w.publish(2000, 0)
		w.env.WaitFor(time.Minute, "it is alone, and the others are together", func() bool {
			n, m := len(members[0].Assigned()), len(members[1].Assigned())
			return min(n, m) == 1 && max(n, m) == 7
		})
		for _, m := range members {
			m.Resume(0)
		}
		w.waitRead(10 * time.Second)
		require.Zero(t, w.ledger.again())
	})
}

// What it lists weighs the same however far it is behind, but for what makes the leader think again.
func TestLagAwareListsNoLag(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newLagWorld(LagAware{HalfLife: -1}, 9, 3)
		w.assign(t)
		w.lags["000"], w.lags["004"] = 50_000, 100_000
		before := w.f.list[0].Cost()
		require.Equal(t, 1, w.changes(t, 1, func(int) {}))
		list, err := w.f.ListPartitions(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, before, list[0].Cost())
		require.Less(t, list[0].Cost(), int64(types.DefaultWeight))
		for _, p := range list[1:] {
			require.EqualValues(t, types.DefaultWeight, p.Cost())
		}
	})
}

// A worker without room for what is to move does not keep it from those that have some, even if it is the least loaded.
func TestLagAwareMovesToWhoHasRoom(t *testing.T) {
	for name, limit := range map[string]types.Capacity{"weight": {Weight: 1050}, "number": {Partitions: 10}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newLagWorld(LagAware{HalfLife: -1}, 40, 4)
				w.workers[3].Capacity = limit
				for i := range 3 {
					w.workers[i].Capacity.Partitions = 40
				}
				w.assign(t)
				n := 0
				for _, p := range w.f.list {
					if id := p.ID(); w.owners[id] == "w0" && n < 6 {
						w.lags[id] = 100_000
						n++
					}
				}
				w.changes(t, 60, func(int) {})
				require.Equal(t, 10, w.counts()["w3"])
				p := w.f.placement(w.f.placed)
				require.False(t, p.uneven(0.2), "loads %v, mean %v", p.load, p.mean())
			})
		})
	}
}

// What nobody owns goes to a worker that has room for it, though that is the most loaded one.
func TestLagAwareGivesToWhoHasRoom(t *testing.T) {
	f := newLagFollower(LagAware{}, []types.Partition{types.NewPartition("0"), types.NewPartition("1"), types.NewPartition("2")}, nil)
	f.average["0"] = 100_000
	owners, err := f.Assign(context.Background(), types.AssignmentInput{
		Workers:    []types.Worker{{ID: "a", Capacity: types.Capacity{Weight: 150}}, {ID: "b", Capacity: types.Capacity{Weight: 300}}},
		Partitions: f.list, Previous: []int{1, 0, types.NoOwner},
	})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0, 1}, owners)
}

// A lag is noted by itself when it has changed by a quarter and by 100 messages, or by less where MinLag says that less counts; whatever the clock of
// the former owner says.
func TestLagIsNoted(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		min         uint64
		have, noted uint64
		age         time.Duration // of the note
		want        bool
	}{
		{0, 100, 0, time.Minute, false}, {0, 101, 0, time.Minute, true}, {0, 1100, 1000, time.Minute, false}, {0, 1251, 1000, time.Minute, true},
		{1, 1, 0, time.Minute, true}, {1, 0, 1, time.Minute, true}, {1, 0, 0, time.Minute, false}, {50, 50, 0, time.Minute, true}, {50, 49, 0, time.Minute, false},
		{0, 5000, 0, time.Second, false}, {0, 5000, 0, -time.Hour, true},
	} {
		r := &Reader{cfg: defaultConfig()}
		r.cfg.lagAware = &LagAware{MinLag: c.min}
		r.cfg.resolver = SubjectPerPartition("ORDERS", "orders", 1).Resolve
		x := newRun(r, 0, types.Ownership{})
		x.lagSeen, x.saved = c.have, Offset{Lag: c.noted, At: now.Add(-c.age)}
		x.noteLag(now)
		require.Equal(t, c.want, x.force, "%+v", c)
	}
}
