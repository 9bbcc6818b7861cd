package lane

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// One lane's calls come in order and one at a time, others' do not wait for them, and failures end no lane.
func TestLanes(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		var panics, others atomic.Int64
		l := New(10, func(int) { t.Error("nothing is dropped") }, func(string, any, []byte) { panics.Add(1) })
		require.NoError(t, l.Wait(t.Context()))
		hang := make(chan struct{})
		var order []int
		l.Add("a", func() { <-hang; panic("no") })
		l.Add("a", func() { order = append(order, 1); runtime.Goexit() })
		l.Add("a", func() { order = append(order, 2) })
		l.Add("b", func() { others.Add(1) })
		synctest.Wait()
		require.EqualValues(t, 1, others.Load())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Wait(ctx), context.Canceled)
		close(hang)
		require.NoError(t, l.Wait(t.Context()))
		require.Equal(t, []int{1, 2}, order)
		require.EqualValues(t, 2, panics.Load())
		require.Empty(t, l.lanes)
	})
}

// Calls that never return cost no more than the bounds say, and each that is dropped is counted, by a goroutine that may ask who adds.
func TestLanesAreBounded(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		var dropped, called atomic.Int64
		var l *Lanes
		l = New(3, func(n int) { dropped.Add(int64(n)); l.Expect(0) }, nil)
		l.Expect(10)
		hang := make(chan struct{})
		const most = 2*10 + spare
		call := func() { <-hang; called.Add(1) }
		for i := range most + 7 {
			l.Add(fmt.Sprint(i), call)
		}
		synctest.Wait()
		require.EqualValues(t, 7, dropped.Load(), "of lanes too many")
		require.Len(t, l.lanes, most)
		for range 5 {
			l.Add("0", call)
		}
		synctest.Wait()
		require.EqualValues(t, 9, dropped.Load(), "three wait")
		close(hang)
		require.NoError(t, l.Wait(t.Context()))
		require.EqualValues(t, most+3, called.Load())
		require.Empty(t, l.lanes)
	})
}
