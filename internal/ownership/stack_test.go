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
	t.Logf("%d bytes of stack for each", each)
	require.LessOrEqual(t, each, 3_200) // some have grown while memory was found for them, or they were preempted
	<-rt.Drain()
	require.Empty(t, rt.Stop(t.Context()))
}

func stacks() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}
