package checker

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestOracleOverlaps(t *testing.T) {
	o := NewOracle("p")
	o.Start("p", "a", 1)
	o.Start("p", "b", 2)
	require.Len(t, o.Overlaps(), 1)
	require.Equal(t, "a", o.Overlaps()[0].First.Worker)
	require.Equal(t, "b", o.Overlaps()[0].Second.Worker)
	require.Equal(t, "b", o.Running()["p"].Worker)
	o.End("p", "b", 2)
	require.Equal(t, "a", o.Running()["p"].Worker)
	o.End("p", "a", 1)
	require.Empty(t, o.Running())
	require.Empty(t, o.EpochFaults())
	rec := &recorder{}
	o.Check(rec)
	require.Len(t, rec.errors, 1)
}

func TestOracleEpochs(t *testing.T) {
	o := NewOracle()
	run := func(worker string, epoch int64) int {
		before := len(o.EpochFaults())
		o.Observe("p", worker, epoch, func() {})
		return len(o.EpochFaults()) - before
	}
	require.Zero(t, run("a", 5))
	require.Zero(t, run("a", 5)) // called again after it returned early
	require.Equal(t, 1, run("b", 5))
	require.Zero(t, run("b", 7))
	require.Equal(t, 1, run("a", 6))
	require.Equal(t, 1, run("b", 6))
	require.Equal(t, 6, o.Starts())
}

func TestOracleUnknownEnd(t *testing.T) {
	o := NewOracle()
	o.Start("p", "a", 1)
	o.End("p", "a", 2)
	require.Len(t, o.Unknown(), 1)
	require.Len(t, o.Running(), 1)
}

func TestOracleGaps(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		o := NewOracle("p", "q")
		time.Sleep(time.Second) // both idle
		o.Start("p", "a", 1)
		o.Start("q", "a", 1)
		time.Sleep(time.Second)
		o.End("p", "a", 1)
		time.Sleep(3 * time.Second)
		o.Start("p", "b", 2)
		g := o.Gaps()
		require.Equal(t, Gaps{Total: 5 * time.Second, Count: 3, Longest: g.Longest}, g)
		require.Equal(t, "p", g.Longest.Partition)
		require.Equal(t, 3*time.Second, g.Longest.Length())

		o.ResetGaps()
		require.Zero(t, o.Gaps())
		o.End("q", "a", 1)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, o.Gaps().Total) // goes on
		o.Expect("p")                                 // q has left the source: its gap ends here
		time.Sleep(time.Hour)
		require.Equal(t, time.Second, o.Gaps().Total)
		o.Start("stranger", "a", 1)
		o.End("stranger", "a", 1)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, o.Gaps().Total)
	})
}

func TestOracleWaitAllRunning(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		o := NewOracle("p", "q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o.Start("p", "a", 1)
		require.ErrorContains(t, o.WaitAllRunning(ctx), "1 partitions do not run (q)")
		go func() {
			time.Sleep(time.Second)
			o.Start("q", "a", 1)
		}()
		require.NoError(t, o.WaitAllRunning(t.Context()))
		o.Killed("a")
		require.Equal(t, 2, o.Idle())
		require.Empty(t, o.Unknown())
		o.Expect()
		require.NoError(t, o.WaitAllRunning(t.Context()))
	})
}

func TestOracleConcurrent(t *testing.T) {
	const n = 10_000
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "p-" + strconv.Itoa(i)
	}
	o := NewOracle(ids...)
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := w; i < n; i += 10 {
				o.Start(ids[i], "w-"+strconv.Itoa(w), 1)
			}
		})
	}
	require.NoError(t, o.WaitAllRunning(t.Context()))
	wg.Wait()
	require.Len(t, o.Running(), n)
	o.Check(t)
}
