package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// alone is what a runtime needs that has nobody to wait for.
type alone struct{}

func (alone) Valid() bool                                                  { return true }
func (alone) Left() time.Duration                                          { return time.Hour }
func (alone) Fresh(context.Context, []string) (map[string]kv.Entry, error) { return nil, nil }
func (alone) Last(context.Context, []string) map[string]kv.Entry           { return nil }
func (alone) Follow([]string) error                                        { return nil }

// own returns a runtime to which a commit gives these entries; they run.
func own(entries []types.AssignmentEntry, handler Handler) *Runtime {
	me := types.Holder{Worker: "me", Incarnation: "i1"}
	rt := New(Config{
		Handler: handler, HandoffTimeout: -1, DrainTimeout: time.Hour, FenceGrace: time.Hour, HeartbeatTTL: time.Hour, Lease: alone{}, Observer: alone{},
		Notify: func() {}, Failed: func(error) {}, Expired: func(string) {}, Metrics: types.NopMetrics{}, Logger: slog.New(slog.DiscardHandler),
	})
	rt.Start()
	rt.Begin(me)
	rt.Apply(Commit{Holder: me, Version: 1, Entries: entries, Digest: "d"})
	h := types.Heartbeat{WorkerID: me.Worker, Incarnation: me.Incarnation, Nonce: "n"}
	rt.Compose(&h)
	rt.Stored(h, 1)
	return rt
}

func numbered(n int) []types.AssignmentEntry {
	entries := make([]types.AssignmentEntry, n)
	for i := range entries {
		entries[i] = types.AssignmentEntry{Partition: types.NewPartition("p", fmt.Sprintf("%07d", i)), Epoch: 1}
	}
	return entries
}

func inUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A partition that is owned without user code costs little beside its entry in the commit, and what was drained costs nothing.
func TestOwnedPartitionsAreSmall(t *testing.T) {
	const n = 20_000
	entries := numbered(n)
	before := inUse()
	rt := own(entries, nil)
	each := (inUse() - before) / n
	t.Logf("%d bytes for each", each)
	require.Equal(t, n, rt.Running())
	require.LessOrEqual(t, each, 180)
	rt.Apply(Commit{Holder: types.Holder{Worker: "me", Incarnation: "i1"}, Version: 2, Entries: entries[:1], Digest: "d"})
	require.Equal(t, 1, rt.Running())
	each = (inUse() - before) / n
	t.Logf("%d bytes for each that was drained", each)
	require.LessOrEqual(t, each, 60) // the map of all has the size of the most that it ever held
	require.Empty(t, rt.Stop(t.Context()))
	runtime.KeepAlive(entries)
}

// BenchmarkFence is a fence of 100,000 running handlers until the last of them knows.
func BenchmarkFence(b *testing.B) {
	const n = 100_000
	entries := numbered(n)
	var running, told atomic.Int64
	for b.Loop() {
		b.StopTimer()
		running.Store(0)
		told.Store(0)
		last := make(chan struct{})
		rt := own(entries, func(ctx context.Context, _ types.Ownership) error {
			running.Add(1)
			<-ctx.Done()
			if told.Add(1) == n {
				close(last)
			}
			return nil
		})
		for running.Load() < n {
			time.Sleep(time.Millisecond)
		}
		b.StartTimer()
		returned := rt.Fence(types.ErrLeaseExpired)
		<-last
		b.StopTimer()
		<-returned
		rt.Stop(context.Background())
		b.StartTimer()
	}
}
