package consumer

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// refuseOffsets makes the server refuse every offset, or take them again.
func (w *world) refuseOffsets(refuse bool) {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(time.Minute), "KV_"+DefaultOffsetsBucket)
	require.NoError(w.t, err)
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = -1
	if refuse {
		cfg.MaxMsgSize = 10
	}
	_, err = w.js.UpdateStream(w.ctx(time.Minute), cfg)
	require.NoError(w.t, err)
}

// tallies counts messages by partition, and how many of them came before.
type tallies struct {
	mu    sync.Mutex
	seen  map[[2]string]bool
	again map[int]int
}

func (c *tallies) note(m Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := [2]string{m.Subject, string(m.Data)}
	if c.seen[at] {
		c.again[m.Partition]++
	}
	c.seen[at] = true
}

// The ways to hand out and acknowledge without waiting for offsets, told to the ledger and the tallies.
var unwaited = map[string]func(m *member, ctx context.Context, c *tallies){
	"process": func(m *member, ctx context.Context, c *tallies) {
		_ = m.Process(ctx, func(_ context.Context, msg Message) error {
			m.w.ledger.record(m.name, msg)
			c.note(msg)
			return nil
		})
	},
	"all": func(m *member, ctx context.Context, c *tallies) {
		for msg, err := range m.All(ctx) {
			if err != nil {
				return
			}
			m.w.ledger.record(m.name, msg)
			c.note(msg)
		}
	},
	"fetch": func(m *member, ctx context.Context, c *tallies) {
		for {
			ms, err := m.Fetch(ctx, fetched)
			if err != nil {
				return
			}
			for _, msg := range ms {
				m.w.ledger.record(m.name, msg)
				c.note(msg)
			}
			_ = m.AckLater(ms...)
		}
	},
}

// fetched is how many messages a Fetch of these tests takes.
const fetched = 40

// Offsets cannot be stored for 10 s while messages flow, and then the reader dies: no more comes again than ten times what WithCommit says.
func TestRepeatsAreBounded(t *testing.T) {
	natstest.Long(t)
	const commit, bound = 20, 200
	for name, use := range unwaited {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := &tallies{seen: map[[2]string]bool{}, again: map[int]int{}}
				a, ctx := w.owning(30, 0, WithCommit(100*time.Millisecond, commit))
				using, stop := context.WithCancel(ctx)
				a.stop = stop
				a.work.Go(func() { use(a, using, c) })
				w.publish(30)
				w.waitRead(10 * time.Second)
				time.Sleep(time.Second)
				before := w.ledger.count()
				w.refuseOffsets(true)
				for range 100 {
					w.publish(5)
					time.Sleep(100 * time.Millisecond)
				}
				require.LessOrEqual(t, w.ledger.count()-before, w.parts*bound+fetched)
				for _, p := range a.Stats().Partitions {
					require.True(t, p.HeldBack, "%+v", p)
					require.GreaterOrEqual(t, p.Unstored, bound)
				}
				a.kill()
				w.refuseOffsets(false)
				b := w.join()
				b.work.Go(func() { unwaited["process"](b, ctx, c) })
				w.waitRead(time.Minute)
				b.leave()
				for p := range w.parts {
					if name == "fetch" { // and what it was handed last
						require.Less(t, c.again[p], bound+fetched)
					} else {
						require.Equal(t, bound, c.again[p])
					}
				}
			})
		})
	}
}

// A partition that was held back goes on when offsets are stored again, and nothing repeats. Meanwhile OnError and Stats tell.
func TestHeldBackGoesOn(t *testing.T) {
	natstest.Long(t)
	for name, use := range unwaited {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := &tallies{seen: map[[2]string]bool{}, again: map[int]int{}}
				var told atomic.Int64
				a, ctx := w.owning(30, 0, WithCommit(100*time.Millisecond, 5), WithHooks(Hooks{OnError: func(int, error) { told.Add(1) }}))
				using, stop := context.WithCancel(ctx)
				a.stop = stop
				a.work.Go(func() { use(a, using, c) })
				for range 2 {
					w.publish(30)
					w.waitRead(10 * time.Second)
					w.refuseOffsets(true)
					w.publish(80)
					time.Sleep(10 * time.Second)
					require.Positive(t, told.Swap(0))
					require.True(t, a.Stats().Partitions[3].HeldBack)
					w.refuseOffsets(false)
					w.waitRead(10 * time.Second)
					time.Sleep(time.Second)
					stats := a.Stats().Partitions[3]
					require.False(t, stats.HeldBack)
					require.Zero(t, stats.Unstored)
				}
				require.Zero(t, w.ledger.again())
			})
		})
	}
}

// A hook that does not return holds back its partition, as soon as that has acknowledged as much as may be unstored, and OnError says why.
func TestHungOnCommittedHoldsBack(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		block := make(chan struct{})
		told := make(chan error, 100)
		a, _ := w.owning(0, 0, WithCommit(100*time.Millisecond, 5), WithHooks(Hooks{
			OnCommitted: func(o Offset) {
				if o.Partition == 2 {
					<-block
				}
			},
			OnError: func(_ int, err error) { told <- err },
		}))
		a.process()
		w.publish(1)
		time.Sleep(time.Second)
		w.publish(300)
		time.Sleep(10 * time.Second)
		require.Equal(t, 7*301+1+50, w.ledger.count())
		require.True(t, a.Stats().Partitions[2].HeldBack)
		require.ErrorContains(t, <-told, "partition 2: 50 messages are acknowledged and no offset behind 3 is stored")
		close(block)
		w.waitRead(10 * time.Second)
		require.False(t, a.Stats().Partitions[2].HeldBack)
	})
}

// However large the number of WithCommit is, it is no bound of less.
func TestMostUnstored(t *testing.T) {
	for n, want := range map[int]int{1: 10, 100: 1000, math.MaxInt: math.MaxInt, math.MaxInt / 10: math.MaxInt / 10 * 10} {
		c := config{commitMsgs: n}
		require.Equal(t, want, c.mostUnstored())
	}
}

// Where a partition begins that has no offset yet is stored before anything of it is handed out: a Reader that took it over would begin elsewhere,
// and pass over what lies in between.
func TestBeginningIsStoredFirst(t *testing.T) {
	for name, at := range map[string]func() Position{
		"latest": Latest, "at a sequence": func() Position { return AtSequence(100) }, "at a time": func() Position { return AtTime(time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				w.publish(3, 0)
				time.Sleep(time.Second)
				claimed, hold := make(chan struct{}), make(chan struct{})
				a := w.join(WithStart(at()), WithFetchWait(10*time.Second, 100*time.Millisecond), WithHooks(Hooks{OnAssigned: func(int, int64) {
					close(claimed)
					<-hold
				}}))
				<-claimed
				w.refuseOffsets(true)
				close(hold)
				time.Sleep(time.Second)
				w.publish(2, 0)
				ctx := w.ctx(time.Hour)
				ms, err := a.Fetch(ctx, 10)
				require.NoError(t, err)
				require.Empty(t, ms)
				w.refuseOffsets(false)
				ms, err = a.Fetch(ctx, 10)
				require.NoError(t, err)
				require.Equal(t, []string{"0/4", "0/5"}, texts(ms))
				a.kill()
				b := w.join(WithStart(at()))
				ms, err = b.Fetch(ctx, 10)
				require.NoError(t, err)
				require.Equal(t, []string{"0/4", "0/5"}, texts(ms), "not where it would begin by itself")
			}, withLayout(SubjectPerPartition("ORDERS", "orders", 1)))
		})
	}
}
