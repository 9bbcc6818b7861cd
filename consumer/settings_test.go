package consumer

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// WithConcurrency bounds how many handlers run; without it each partition has one.
func TestConcurrency(t *testing.T) {
	for n, want := range map[int]int64{0: 8, 1: 1, 3: 3} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			bubble(t, func(w *world) {
				var running, most atomic.Int64
				a, _ := w.owning(0, 0, WithConcurrency(n))
				w.publish(20)
				a.processWith(func(context.Context, Message) error {
					defer running.Add(-1)
					now := running.Add(1)
					for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
					}
					time.Sleep(10 * time.Millisecond)
					return nil
				})
				w.waitRead(time.Minute)
				require.Equal(t, want, most.Load())
			})
		})
	}
}

// WithTotalBuffer bounds what all partitions hold together, by number and by bytes, read alone or together.
func TestTotalBuffer(t *testing.T) {
	natstest.Long(t)
	const room = 180 // what a message of the test may count, in bytes
	for _, together := range []bool{false, true} {
		for name, limit := range map[string][2]int{"messages": {80, 1 << 20}, "bytes": {50_000, 400 * room}} {
			t.Run(fmt.Sprintf("%s together %t", name, together), func(t *testing.T) {
				bubble(t, func(w *world) {
					above := 64
					if together {
						above = 0
					}
					a, ctx := w.owning(0, 0, WithTotalBuffer(limit[0], limit[1]), WithSharedAbove(above))
					w.publish(200)
					time.Sleep(10 * time.Second)
					messages, bytes := 0, 0
					for _, p := range a.Stats().Partitions {
						require.Positive(t, p.Buffered)
						messages, bytes = messages+p.Buffered, bytes+p.BufferedBytes
					}
					t.Logf("%d messages, %d bytes", messages, bytes)
					require.LessOrEqual(t, messages, limit[0])
					require.LessOrEqual(t, bytes, limit[1]+8*room, "the last of each may exceed its share")
					total := 0
					for total < 1600 { // and what did not fit comes when there is room
						ms, err := a.Fetch(ctx, 1000)
						require.NoError(t, err)
						require.NotEmpty(t, ms)
						require.NoError(t, a.Ack(ctx, ms...))
						total += len(ms)
					}
				})
			})
		}
	}
}

// fetchFirst fetches and acknowledges until n messages have come, and returns the first of each partition.
func fetchFirst(t *testing.T, ctx context.Context, m *member, n int) map[int]string {
	t.Helper()
	first := map[int]string{}
	for total := 0; total < n; {
		ms, err := m.Fetch(ctx, 100)
		require.NoError(t, err)
		require.NotEmpty(t, ms, "%d of %d have come", total, n)
		for _, msg := range ms {
			if first[msg.Partition] == "" {
				first[msg.Partition] = string(msg.Data)
			}
		}
		require.NoError(t, m.Ack(ctx, ms...))
		total += len(ms)
	}
	return first
}

// WithStart says where a partition without an offset begins; where there is one, that counts.
func TestStartPosition(t *testing.T) {
	natstest.Long(t)
	for name, c := range map[string]struct {
		at    func(between time.Time) Position
		first string // of each partition, of 1 to 15
		n     int
	}{
		"earliest": {func(time.Time) Position { return Earliest() }, "1", 15},
		"latest":   {func(time.Time) Position { return Latest() }, "11", 5},
		"sequence": {func(time.Time) Position { return AtSequence(8*6 + 1) }, "7", 9},
		"time":     {AtTime, "5", 11},
	} {
		for _, together := range []int{64, 0} {
			t.Run(fmt.Sprintf("%s above %d", name, together), func(t *testing.T) {
				bubble(t, func(w *world) {
					w.create()
					w.publish(4)
					time.Sleep(time.Second)
					between := time.Now()
					time.Sleep(time.Second)
					w.publish(6)
					options := []Option{WithStart(c.at(between)), WithSharedAbove(together)}
					a := w.join(options...)
					w.waitOwned(10 * time.Second)
					time.Sleep(5 * time.Second)
					w.publish(5)
					first := fetchFirst(t, w.ctx(time.Hour), a, 8*c.n)
					require.Len(t, first, 8)
					for _, data := range first {
						require.Equal(t, c.first, data)
					}
					a.leave()
					w.publish(3)
					b := w.join(options...)
					for _, data := range fetchFirst(t, w.ctx(time.Hour), b, 8*3) {
						require.Equal(t, "16", data, "where the other one was")
					}
				})
			})
		}
	}
}

// WithStrategy decides who gets what.
func TestStrategyOfTheGroup(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		var asked atomic.Int64
		last := WithStrategy(types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			owners := make([]int, len(in.Partitions))
			for i := range owners {
				owners[i] = len(in.Workers) - 1
			}
			asked.Store(max(asked.Load(), int64(len(in.Workers))))
			return owners, nil
		}))
		members := []*member{w.join(last), w.join(last), w.join(last)}
		w.env.WaitFor(30*time.Second, "it is asked about all three", func() bool { return asked.Load() == 3 })
		time.Sleep(5 * time.Second)
		owned := map[int]int{}
		for _, m := range members {
			owned[len(m.Assigned())]++
		}
		require.Equal(t, map[int]int{8: 1, 0: 2}, owned)
	})
}
