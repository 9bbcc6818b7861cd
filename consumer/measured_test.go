package consumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ears take down what hooks and metrics are told.
type ears struct {
	mu       sync.Mutex
	assigned map[int]int64 // by hook: epoch
	revoked  map[int]int64
	lost     map[int]int64

	owned    map[int]int64 // by metrics: epoch, between PartitionAssigned and PartitionGone
	gone     int
	lag      map[int]uint64
	buffered map[int][2]int
	fetched  []int
	handled  map[int][2]int // well, and not
	took     time.Duration  // the longest handler
	stored   map[int]int    // by partition, without an error
	failed   int
	expired  map[int]uint64
	poisoned map[string]int
	restarts map[int]int
}

func newEars() *ears {
	return &ears{
		assigned: map[int]int64{}, revoked: map[int]int64{}, lost: map[int]int64{}, owned: map[int]int64{}, lag: map[int]uint64{},
		buffered: map[int][2]int{}, handled: map[int][2]int{}, stored: map[int]int{}, expired: map[int]uint64{}, poisoned: map[string]int{}, restarts: map[int]int{},
	}
}

// with calls f while nothing changes.
func (e *ears) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *ears) options() Option {
	note := func(in map[int]int64) func(int, int64) {
		return func(p int, epoch int64) { e.with(func() { in[p] = epoch }) }
	}
	return func(c *config) {
		WithHooks(Hooks{OnAssigned: note(e.assigned), OnRevoked: note(e.revoked), OnLost: note(e.lost)})(c)
		WithMetrics(e)(c)
	}
}

var _ Metrics = (*ears)(nil)

func (e *ears) PartitionAssigned(p int, epoch int64) { e.with(func() { e.owned[p] = epoch }) }
func (e *ears) PartitionGone(p int)                  { e.with(func() { delete(e.owned, p); e.gone++ }) }
func (e *ears) Lag(p int, n uint64)                  { e.with(func() { e.lag[p] = n }) }
func (e *ears) Buffered(p, n, bytes int)             { e.with(func() { e.buffered[p] = [2]int{n, bytes} }) }
func (e *ears) Fetched(n int)                        { e.with(func() { e.fetched = append(e.fetched, n) }) }
func (e *ears) Expired(p int, n uint64)              { e.with(func() { e.expired[p] += n }) }
func (e *ears) ReadingRestarted(p int, _ string)     { e.with(func() { e.restarts[p]++ }) }

func (e *ears) Poisoned(p int, a PoisonAction) {
	e.with(func() { e.poisoned[fmt.Sprint(p, " ", a)]++ })
}

func (e *ears) Handled(p int, took time.Duration, err error) {
	e.with(func() {
		n := e.handled[p]
		if err == nil {
			n[0]++
		} else {
			n[1]++
		}
		e.handled[p], e.took = n, max(e.took, took)
	})
}

func (e *ears) Committed(p int, _ time.Duration, err error) {
	e.with(func() {
		if err == nil {
			e.stored[p]++
		} else {
			e.failed++
		}
	})
}

// OnRevoked and OnLost tell of each ownership how it ended, and the metrics have nothing of a partition that is not owned.
func TestEndsAreTold(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		e := newEars()
		a := w.join(e.options())
		w.waitOwned(10 * time.Second)
		first := map[int]int64{}
		e.with(func() {
			require.Len(t, e.assigned, 8)
			require.Equal(t, e.assigned, e.owned)
			for p, epoch := range e.assigned {
				first[p] = epoch
			}
		})
		b := w.join()
		w.env.WaitFor(20*time.Second, "the other one has its share", func() bool { return len(b.Assigned()) == 4 })
		e.with(func() {
			require.Len(t, e.revoked, 4)
			for p, epoch := range e.revoked {
				require.Equal(t, first[p], epoch)
				require.NotContains(t, e.owned, p)
			}
			require.Empty(t, e.lost)
			require.Len(t, e.owned, 4)
		})
		a.client.Gate().Cut()
		time.Sleep(10 * time.Second)
		e.with(func() {
			require.Len(t, e.revoked, 4)
			require.Len(t, e.lost, 4)
			for p, epoch := range e.lost {
				require.Equal(t, first[p], epoch)
			}
			require.Empty(t, e.owned)
			require.Equal(t, 8, e.gone)
			clear(e.revoked)
			clear(e.lost)
		})
		a.client.Gate().Heal()
		w.env.WaitFor(30*time.Second, "it has a share again", func() bool { return len(a.Assigned()) == 4 })
		a.leave()
		e.with(func() {
			require.Len(t, e.revoked, 4)
			require.Empty(t, e.lost)
			require.Empty(t, e.owned)
			require.Equal(t, 12, e.gone)
		})
	})
}

// What handlers do is measured: every call with its time and its end, every message once, and what became of the one that is bad.
func TestHandlersAreMeasured(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		w.ledger.Exempt(2)
		e := newEars()
		a := w.join(e.options(), WithPoison(PoisonSkip), WithRetry(Retry{Attempts: 3, First: time.Second, Limit: time.Second}))
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 2 && string(m.Data) == "3" {
				return errBad
			}
			if m.Partition == 7 {
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
		w.waitRead(20 * time.Second)
		a.leave()
		e.with(func() {
			for p := range 8 {
				want := [2]int{5, 0}
				if p == 2 {
					want = [2]int{4, 3}
				}
				require.Equal(t, want, e.handled[p], "partition %d", p)
				require.Positive(t, e.stored[p], "partition %d", p)
			}
			require.Equal(t, 20*time.Millisecond, e.took)
			require.Equal(t, map[string]int{"2 skip": 1}, e.poisoned)
			require.Equal(t, 40, sum(e.fetched))
			require.Zero(t, e.failed)
		})
	})
}

func sum(ns []int) (n int) {
	for _, i := range ns {
		n += i
	}
	return n
}

// What Fetch and All hand out is counted once, also where Fetch returns it again.
func TestHandingOutIsCounted(t *testing.T) {
	bubble(t, func(w *world) {
		e := newEars()
		a, ctx := w.owning(20, 3, e.options())
		time.Sleep(time.Second)
		var ms []Message
		for range 3 {
			var err error
			ms, err = a.Fetch(ctx, 12)
			require.NoError(t, err)
			require.Len(t, ms, 12)
			e.with(func() { require.Equal(t, []int{12}, e.fetched) })
		}
		require.NoError(t, a.Ack(ctx, ms...))
		n := 0
		for _, err := range a.All(ctx) {
			require.NoError(t, err)
			if n++; n == 8 {
				break
			}
		}
		e.with(func() { require.Equal(t, 20, sum(e.fetched)) })
	})
}

// Lag and buffer are reported as they are, about once a second, read alone or together.
func TestGaugesAreReported(t *testing.T) {
	for _, above := range []int{64, 0} {
		t.Run(fmt.Sprint("above ", above), func(t *testing.T) {
			bubble(t, func(w *world) {
				e := newEars()
				a, ctx := w.owning(7, 3, e.options(), WithSharedAbove(above))
				time.Sleep(5 * time.Second)
				bytes := a.Stats().Partitions[3].BufferedBytes
				require.Positive(t, bytes)
				e.with(func() {
					require.EqualValues(t, 7, e.lag[3])
					require.Equal(t, [2]int{7, bytes}, e.buffered[3])
					require.Contains(t, e.lag, 4)
					require.Zero(t, e.lag[4])
					require.Equal(t, [2]int{}, e.buffered[4])
				})
				ms, err := a.Fetch(ctx, 7)
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
				e.with(func() {
					require.EqualValues(t, 7, e.lag[3], "handed out and not acknowledged")
					require.Equal(t, [2]int{}, e.buffered[3])
				})
				require.NoError(t, a.Ack(ctx, ms...))
				time.Sleep(2 * time.Second)
				e.with(func() { require.Zero(t, e.lag[3]) })
			})
		})
	}
}

// Messages that are gone, and consumers that are made anew, are measured.
func TestMishapsAreMeasured(t *testing.T) {
	for _, above := range []int{64, 0} {
		t.Run(fmt.Sprint("above ", above), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				e := newEars()
				w.publish(5)
				a := w.join()
				w.ledger.unjudged = true
				a.process()
				w.waitRead(10 * time.Second)
				a.leave()
				w.publish(5) // sequences 41 to 80
				purge(w, 57) // of each partition two
				b := w.join(e.options(), WithSharedAbove(above))
				for p := range 8 {
					w.ledger.Exempt(p)
				}
				b.process()
				w.waitRead(10 * time.Second)
				e.with(func() {
					require.Len(t, e.expired, 8)
					for p, n := range e.expired {
						require.GreaterOrEqual(t, n, uint64(2), "partition %d", p)
						require.LessOrEqual(t, n, uint64(56), "partition %d", p)
					}
					require.Empty(t, e.restarts)
				})
				stream, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
				require.NoError(t, err)
				for name := range stream.ConsumerNames(w.ctx(time.Minute)).Name() {
					require.NoError(t, stream.DeleteConsumer(w.ctx(time.Minute), name))
				}
				w.publish(5)
				w.waitRead(10 * time.Second)
				e.with(func() {
					if above == 0 {
						require.Equal(t, map[int]int{-1: 1}, e.restarts)
					} else {
						require.Len(t, e.restarts, 8)
					}
				})
			})
		})
	}
}

// A commit that fails is measured as one.
func TestFailedCommitsAreMeasured(t *testing.T) {
	bubble(t, func(w *world) {
		w.ledger.unjudged = true
		e := newEars()
		a, ctx := w.owning(5, 3, e.options())
		w.block(ctx)
		ms, err := a.Fetch(ctx, 5)
		require.NoError(t, err)
		require.NoError(t, a.AckLater(ms...))
		time.Sleep(10 * time.Second)
		e.with(func() {
			require.Positive(t, e.failed)
			require.Empty(t, e.stored)
		})
		w.unblock(ctx)
		time.Sleep(10 * time.Second)
		e.with(func() { require.Positive(t, e.stored[3]) })
	})
}
