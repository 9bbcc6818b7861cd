package ownership

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

func (r *rig) hooks() Hooks {
	note := func(what string) func(types.Ownership) {
		return func(o types.Ownership) {
			id := o.Partition.ID()
			r.note("%s %s", what, id)
			r.mu.Lock()
			hold := r.release[what+" "+id]
			r.mu.Unlock()
			if hold != nil {
				<-hold
			}
		}
	}
	return Hooks{OnAssigned: note("assigned"), OnRevoked: note("revoked"), OnLost: note("lost")}
}

// For one partition: assigned, handler, cancelled, handler returned, revoked. The run is named until the last has returned.
func TestHooksOfOnePartitionAreOrdered(t *testing.T) {
	withRig(t, func(r *rig) {
		r.rt.cfg.Hooks = r.hooks()
		r.apply(10, entry("a", 10))
		r.beat()
		r.hold("revoked a")
		r.apply(11)
		require.Equal(t, []string{"assigned a", "start a 10", "cancel a 10: parti: partition revoked", "return a 10", "revoked a"}, r.take())
		require.Len(t, r.beat().Unreturned, 1, "OnRevoked may finish what it does")
		r.letGo("revoked a")
		synctest.Wait()
		require.Empty(t, r.beat().Unreturned)
	})
}

// Without a handler the run ends when OnRevoked has returned.
func TestHooksAlone(t *testing.T) {
	withRig(t, func(r *rig) {
		r.rt.cfg.Hooks, r.rt.passive = r.hooks(), false
		r.apply(10, entry("a", 10))
		r.beat()
		r.hold("revoked a")
		require.Equal(t, []string{"assigned a"}, r.take())
		r.apply(11)
		require.Equal(t, []string{"revoked a"}, r.take())
		require.Len(t, r.beat().Unreturned, 1)
		r.letGo("revoked a")
		synctest.Wait()
		require.Empty(t, r.beat().Unreturned)
	}, func(c *Config) { c.Handler = nil })
}

// OnLost waits neither for the handler nor for OnRevoked, and no other partition waits for a slow hook.
func TestOnLostWaitsForNothing(t *testing.T) {
	withRig(t, func(r *rig) {
		r.rt.cfg.Hooks = r.hooks()
		r.apply(10, entry("a", 10), entry("b", 10), entry("c", 10))
		r.beat()
		r.hold("a")         // its handler hangs
		r.hold("revoked b") // its OnRevoked hangs
		r.apply(11, entry("a", 10), entry("c", 10))
		r.beat()
		r.take()
		time.Sleep(testTTL)
		synctest.Wait()
		require.Equal(t, []string{
			"cancel a 10: parti: lease expired", "cancel c 10: parti: lease expired", "lost a", "lost b", "lost c", "return c 10",
		}, sorted(r.take()))
		r.letGo("a")
		r.letGo("revoked b")
	})
}

// Neither handler nor hooks: a run is a fact without a goroutine, and returned as soon as it is cancelled.
func TestPollingAlone(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		r.beat()
		require.True(t, r.rt.Owns("a"))
		epoch, ok := r.rt.Epoch("a")
		require.True(t, ok)
		require.Equal(t, int64(10), epoch)
		r.apply(11)
		require.False(t, r.rt.Owns("a"))
		require.Empty(t, r.beat().Unreturned)
		require.Empty(t, r.rt.Partitions())
	}, func(c *Config) { c.Handler = nil })
}

func TestSnapshotsAreCopies(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10, from("other", "o1", 10)))
		r.beat()
		a := r.rt.Assignment()
		require.Len(t, a.Partitions, 2)
		a.Partitions[0].Partition.Keys[0] = "spoilt"
		require.Equal(t, "a", r.rt.Assignment().Partitions[0].Partition.ID())
		ps := r.rt.Partitions()
		require.Equal(t, []types.OwnershipState{types.OwnershipRunning, types.OwnershipWaiting}, []types.OwnershipState{ps[0].State, ps[1].State})
		require.Equal(t, []types.Holder{{Worker: "other", Incarnation: "o1"}}, ps[1].WaitingFor)
		ps[1].WaitingFor[0].Worker = "spoilt"
		require.Equal(t, "other", r.rt.Partitions()[1].WaitingFor[0].Worker)
	})
}
