package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestNothingStartsBeforeTheHeartbeatIsStored(t *testing.T) {
	withRig(t, func(r *rig) {
		before := r.compose() // composed before the commit is applied: its arrival proves nothing
		r.apply(10, entry("a", 10))
		require.Empty(t, r.take())
		r.store(before)
		require.Empty(t, r.take())
		require.False(t, r.rt.Owns("a"))
		require.Equal(t, int64(10), r.beat().AppliedVersion)
		require.Equal(t, []string{"start a 10"}, r.take())
		require.True(t, r.rt.Owns("a"))
	})
}

func TestVersionsAloneDecide(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		require.False(t, r.rt.Apply(Commit{Holder: r.me, Version: 10}), "the same again")
		require.False(t, r.rt.Apply(Commit{Holder: r.me, Version: 9}), "an older one: no worker goes back")
		require.False(t, r.rt.Apply(Commit{Holder: types.Holder{Worker: "me", Incarnation: "i0"}, Version: 11}), "looked up for an earlier life")
		r.beat()
		require.Equal(t, []string{"start a 10"}, r.take())
	})
}

// A commit that takes a partition away is acknowledged at once, naming the run until it has returned; only that one is held back.
func TestAcknowledgementNamesWhatHasNotReturned(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10))
		r.beat()
		r.hold("a")
		r.take()
		r.apply(11)
		require.Equal(t, []string{"cancel a 10: parti: partition revoked", "cancel b 10: parti: partition revoked", "return b 10"}, sorted(r.take()))
		h := r.beat()
		require.Equal(t, int64(11), h.AppliedVersion)
		require.Equal(t, []types.Run{{Partition: "a", Epoch: 10}}, h.Unreturned)
		notified := r.seen().notified
		r.letGo("a")
		require.Equal(t, []string{"return a 10"}, r.take())
		require.Greater(t, r.seen().notified, notified, "a named run that has returned is told at once")
		require.Empty(t, r.beat().Unreturned)
	})
}

// Too many to name: the version stays where its list fitted, with those of its names that have not returned; never the newer version
// with a shortened list, never the older one without its list.
func TestTooManyDrainsReportTheLastPairThatFitted(t *testing.T) {
	withRig(t, func(r *rig) {
		many := make([]types.AssignmentEntry, 0, types.MaxUnreturned+2)
		for i := range types.MaxUnreturned + 2 {
			id := fmt.Sprintf("p%03d", i)
			many = append(many, entry(id, 10))
			r.hold(id)
		}
		r.apply(10, many...)
		r.beat()
		r.apply(11, many[1:]...) // p000 is taken away
		require.Equal(t, []types.Run{{Partition: "p000", Epoch: 10}}, r.beat().Unreturned)
		r.apply(12)
		h := r.beat()
		require.Equal(t, int64(11), h.AppliedVersion)
		require.Equal(t, []types.Run{{Partition: "p000", Epoch: 10}}, h.Unreturned)
		r.letGo("p000")
		synctest.Wait()
		h = r.beat()
		require.Equal(t, int64(11), h.AppliedVersion, "65 still drain")
		require.Empty(t, h.Unreturned)
		r.letGo("p001")
		synctest.Wait()
		h = r.beat()
		require.Equal(t, int64(12), h.AppliedVersion)
		require.Len(t, h.Unreturned, types.MaxUnreturned)
	})
}

// Regained under a newer epoch while the earlier run drains: that run stays named, and the new one starts only when it has returned,
// whatever any timeout says.
func TestPartitionNeverRunsTwiceHere(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		r.beat()
		r.hold("a")
		r.apply(12, entry("a", 12, from("me", "i1", 12), from("other", "o1", 12)))
		h := r.beat()
		require.Equal(t, []types.Run{{Partition: "a", Epoch: 10}}, h.Unreturned)
		r.hears(other("o1", 12))
		for range 6 { // past DrainTimeout and HandoffTimeout
			time.Sleep(10 * time.Second)
			r.beat()
		}
		require.Equal(t, []string{"start a 10", "cancel a 10: parti: partition revoked"}, r.take())
		require.Equal(t, []types.Run{{Partition: "a", Epoch: 10}}, r.compose().Unreturned, "DrainTimeout removes no name")
		require.Equal(t, []string{"a"}, r.seen().overdue)
		r.letGo("a")
		require.Equal(t, []string{"return a 10", "start a 12"}, r.take())
	})
}

func TestReleaseRules(t *testing.T) {
	gone := func(op kv.Op) func(*rig) {
		return func(r *rig) {
			rev := r.put("other", kv.Entry{Op: op})
			r.rt.Heard("other", kv.Entry{Op: op, Revision: rev})
		}
	}
	deleted := func(ago time.Duration) func(*rig) { // before this worker's own heartbeat
		return func(r *rig) {
			rev := r.put("other", kv.Entry{Op: kv.Delete, Created: time.Now().Add(-ago)})
			r.rt.Heard("other", kv.Entry{Op: kv.Delete, Revision: rev})
		}
	}
	next := func(over types.ClaimedOver) func(*rig) {
		return func(r *rig) {
			h := other("o2", 0)
			h.ClaimedOver = over
			r.hears(h)
		}
	}
	with := func(h types.Heartbeat) func(*rig) { return func(r *rig) { r.hears(h) } }
	left := other("o1", 3)
	left.State = types.WorkerLeft
	leftNaming := other("o1", 3, types.Run{Partition: "a", Epoch: 3})
	leftNaming.State = types.WorkerLeft
	for _, c := range []struct {
		name  string
		what  func(*rig)
		after time.Duration // until it starts; negative: not within a minute
	}{
		{"(a) applied the commit that took it away", with(other("o1", 10)), 0},
		{"(a) applied a later one", with(other("o1", 99)), 0},
		{"(a) applied it and names another partition", with(other("o1", 10, types.Run{Partition: "b", Epoch: 3})), 0},
		{"(a) applied it and names the partition", with(other("o1", 10, types.Run{Partition: "a", Epoch: 3})), -1},
		{"(a) names the partition under another epoch", with(other("o1", 10, types.Run{Partition: "a", Epoch: 1})), -1},
		{"(a) has not applied it", with(other("o1", 9)), -1},
		{"(a) left", with(left), 0},
		{"(a) left, naming the partition", with(leftNaming), -1},
		{"(b) expired", gone(kv.Expire), 0},
		{"(b) claimed over an expiry", next(types.ClaimedExpiry), 0},
		{"(b) claimed over last words", next(types.ClaimedLeft), 0},
		{"(b) claimed over its own", next(types.ClaimedOwn), 0},
		{"(c) claimed over nothing", next(types.ClaimedNothing), testTTL},
		{"(c) deleted", gone(kv.Delete), testTTL},
		{"(c) deleted too lately", deleted(testTTL - time.Millisecond), testTTL},
		{"(c) deleted so long ago that it would have expired", deleted(testTTL), 0},
		{"(c) vanished", func(r *rig) { r.locked(func() { delete(r.keys, "other") }); r.rt.Reconnected() }, testTTL},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRig(t, func(r *rig) {
				r.set(other("o1", 9))
				r.apply(10, entry("a", 10, from("other", "o1", 10)))
				r.beat()
				require.Empty(t, r.take(), "the holder has not released it")
				require.Equal(t, []string{"other"}, r.seen().followed)
				began := time.Now()
				c.what(r)
				for len(r.take()) == 0 && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
					r.renew(testTTL)
				}
				switch took := time.Since(began); {
				case c.after < 0:
					require.GreaterOrEqual(t, took, time.Minute)
				default:
					require.GreaterOrEqual(t, took, c.after)
					require.LessOrEqual(t, took, c.after+2*recheck)
					r.take()
					require.Empty(t, r.seen().followed, "nobody is followed any longer than needed")
				}
			}, func(c *Config) { c.HandoffTimeout = -1 })
		})
	}
}

// (b) and (c) count only in an observation that holds this worker's own heartbeat, sent after it applied the commit.
func TestStaleObservationProvesNoAbsence(t *testing.T) {
	withRig(t, func(r *rig) {
		r.put("other", kv.Entry{Op: kv.Expire})
		r.stale = true
		r.apply(10, entry("a", 10, from("other", "o1", 10)))
		r.beat()
		time.Sleep(10 * time.Second)
		require.Empty(t, r.take())
		r.locked(func() { r.stale = false })
		time.Sleep(time.Second)
		require.Equal(t, []string{"start a 10"}, r.take())
	})
}

// A holder that never answers costs an announced, counted overlap under a higher epoch, or for ever where asked.
func TestHandoffTimeoutForcesTheStart(t *testing.T) {
	withRig(t, func(r *rig) {
		r.set(other("o1", 9))
		r.apply(10, entry("a", 10, from("other", "o1", 10)))
		r.beat()
		for range 9 {
			time.Sleep(5*time.Second - time.Millisecond)
			r.renew(testTTL)
			r.set(other("o1", 9)) // it lives
			r.beat()
		}
		require.Empty(t, r.take())
		time.Sleep(time.Second)
		require.Equal(t, []string{"start a 10"}, r.take())
		require.Equal(t, []string{"a"}, r.seen().forced)
	})
}

func TestLeaseRunsOut(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10))
		r.beat()
		r.hold("b")
		r.take()
		time.Sleep(testTTL)
		synctest.Wait()
		require.Equal(t, []string{"cancel a 10: parti: lease expired", "cancel b 10: parti: lease expired", "return a 10"}, sorted(r.take()))
		require.Equal(t, []string{"i1"}, r.seen().expired)
		require.False(t, r.rt.Owns("a"))
		require.False(t, r.rt.Compose(&types.Heartbeat{}), "an incarnation that is over says nothing")
		returned := r.rt.Fence(types.ErrLeaseExpired)
		synctest.Wait()
		require.False(t, isClosed(returned))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"b"}, r.seen().overdue, "later than FenceGrace")
		r.letGo("b")
		synctest.Wait()
		require.True(t, isClosed(returned))
		r.take()

		r.me.Incarnation = "i2"
		r.renew(testTTL)
		r.rt.Begin(r.me)
		r.beat()
		require.Empty(t, r.take(), "nothing is resumed without a commit for the new incarnation")
		r.apply(10, entry("a", 20)) // versions count anew for a new incarnation
		r.beat()
		require.Equal(t, []string{"start a 20"}, r.take())
	})
}

func TestAvailableGoesOn(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		r.beat()
		time.Sleep(2 * testTTL)
		require.True(t, isClosed(r.rt.Fence(types.ErrLeaseExpired)))
		require.Equal(t, []string{"start a 10"}, r.take(), "the run goes on")
		require.False(t, r.rt.Owns("a"), "but the lease does not hold")
		r.me.Incarnation = "i2"
		r.renew(testTTL)
		r.rt.Begin(r.me)
		r.beat()
		require.Empty(t, r.take())
		r.apply(20, entry("a", 20, from("me", "i1", 20)))
		r.beat()
		require.Equal(t, []string{"cancel a 10: parti: partition revoked", "return a 10", "start a 20"}, r.take())
	}, func(c *Config) { c.Available = true })
}

func TestHandlerIsStartedAgain(t *testing.T) {
	var calls atomic.Int64
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10))
		r.beat()
		for range 4 {
			time.Sleep(time.Second)
			r.renew(testTTL)
		}
		require.GreaterOrEqual(t, calls.Load(), int64(5))
		require.True(t, r.rt.Owns("a"))
		calls.Store(0)
		for range 60 {
			time.Sleep(time.Second)
			r.renew(testTTL)
		}
		require.LessOrEqual(t, calls.Load(), int64(6), "the waits grow")
	}, func(c *Config) {
		c.Handler = func(context.Context, types.Ownership) error {
			switch calls.Add(1) % 3 {
			case 0:
				panic("at the disco")
			case 1:
				return errors.New("no luck")
			}
			return nil
		}
	})
}

func TestDrainReleasesOneByOne(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10), entry("b", 10))
		r.beat()
		r.hold("a")
		returned := r.rt.Drain()
		synctest.Wait()
		require.Equal(t, []types.Run{{Partition: "a", Epoch: 10}}, r.beat().Unreturned, "b is released already")
		require.False(t, isClosed(returned))
		r.apply(11, entry("c", 11))
		r.beat()
		r.take()
		r.letGo("a")
		require.Equal(t, []string{"return a 10"}, r.take(), "nothing starts any more")
		require.True(t, isClosed(returned))
	})
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
