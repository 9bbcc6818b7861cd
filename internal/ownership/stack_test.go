//go:build !race

package ownership

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A handler that only waits runs on the smallest stack that there is, 2 KiB: what is under it must not fill that. The race detector's
// stacks are larger.
func TestRunningPartitionsFitTheSmallestStack(t *testing.T) {
	// Some have grown while memory was found for them, or they were preempted: the least of some looks says what they need.
	least := stackOfARun(t)
	for looks := 1; least > 3_200 && looks < 5; looks++ {
		least = min(least, stackOfARun(t))
	}
	t.Logf("%d bytes of stack for each", least)
	require.LessOrEqual(t, least, 3_200)
}

// stackOfARun runs many partitions and returns the bytes of stack that one takes.
func stackOfARun(t *testing.T) int {
	t.Helper()
	const n = 4_000
	entries := numbered(n)
	var running atomic.Int64
	before := stacks()
	rt := own(entries, func(ctx context.Context, _ types.Ownership) error {
		running.Add(1)
		<-ctx.Done()
		return nil
	})
	require.Eventually(t, func() bool { return running.Load() == n }, time.Minute, time.Millisecond)
	each := (stacks() - before) / n
	<-rt.Drain()
	require.Empty(t, rt.Stop(t.Context()))
	return each
}

func stacks() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}
