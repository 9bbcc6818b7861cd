package ownership

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// countingObserver counts the fresh observations, each of which costs the server a consumer.
type countingObserver struct {
	Observer
	fresh atomic.Int64
}

func (o *countingObserver) Fresh(ctx context.Context, workers []string) (map[string]kv.Entry, error) {
	o.fresh.Add(1)
	time.Sleep(time.Millisecond)
	return o.Observer.Fresh(ctx, workers)
}

// While the own heartbeat cannot be written, what waits for it is not looked for again and again: no observation counts for it.
func TestNoObservationsInALoopWhileTheHeartbeatIsNotStored(t *testing.T) {
	o := &countingObserver{}
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10, from("other", "o1", 10)))
		r.beat() // other's key is gone: one HeartbeatTTL has to pass
		time.Sleep(time.Second)
		before := o.fresh.Load()
		r.apply(11, entry("a", 10, from("other", "o1", 10)), entry("b", 11, from("third", "t1", 11)))
		time.Sleep(3 * time.Second) // the heartbeat that acknowledges 11 does not get through
		require.LessOrEqual(t, o.fresh.Load()-before, int64(15))
		r.beat()
		for range 4 {
			time.Sleep(testTTL / 3)
			r.beat()
		}
		require.ElementsMatch(t, []string{"start a 10", "start b 11"}, r.take())
	}, func(c *Config) { o.Observer, c.Observer = c.Observer, o })
}

// When so many drain that they could not be named, and now they can, that is told at once: it releases all those that have returned.
func TestReportThatFitsAgainIsToldAtOnce(t *testing.T) {
	withRig(t, func(r *rig) {
		var many []types.AssignmentEntry
		for i := range types.MaxUnreturned + 2 {
			id := fmt.Sprintf("p%03d", i)
			many = append(many, entry(id, 10))
			r.hold(id)
		}
		r.apply(10, many...)
		r.beat()
		r.apply(11)
		require.Equal(t, int64(10), r.beat().AppliedVersion)
		notified := r.seen().notified
		r.letGo("p000")
		require.Equal(t, notified, r.seen().notified, "nothing new can be said")
		r.letGo("p001")
		require.Greater(t, r.seen().notified, notified)
		require.Equal(t, int64(11), r.beat().AppliedVersion)
	})
}

// How long a key was gone at another time proves nothing about now: a plain worker, whose lives look alike, was away, came back, and
// lost its key again.
func TestEarlierAbsenceOfAPlainWorkerProvesNothing(t *testing.T) {
	withRig(t, func(r *rig) {
		r.apply(10, entry("a", 10, from("other", "", 10)))
		r.beat()
		time.Sleep(time.Second) // seen to be absent
		r.apply(11)             // and given to somebody else
		for range 10 {
			time.Sleep(testTTL / 3)
			r.beat()
		}
		r.apply(12, entry("a", 12, from("other", "", 12)))
		r.beat()
		time.Sleep(testTTL / 2)
		r.beat()
		synctest.Wait()
		require.Empty(t, r.take(), "it may have lost its key just now")
		for range 3 {
			time.Sleep(testTTL / 3)
			r.beat()
		}
		require.Equal(t, []string{"start a 12"}, r.take())
	})
}
