package consumer

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

var errBad = errors.New("bad")

// failing returns a handler that fails for these messages of partition 2.
func failing(calls *[]string, bad ...string) Handler {
	return func(_ context.Context, m Message) error {
		if m.Partition != 2 {
			return nil
		}
		*calls = append(*calls, string(m.Data)) // one at a time for one partition
		for _, b := range bad {
			if string(m.Data) == b {
				return errBad
			}
		}
		return nil
	}
}

func TestPoisonStopsThePartition(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		var stopped error
		a := w.join(WithHooks(Hooks{OnStopped: func(_ int, err error) { stopped = err }}),
			WithRetry(Retry{Attempts: 3, First: time.Second, Limit: time.Minute}))
		var calls []string
		began := time.Now()
		cured := false
		a.processWith(func(ctx context.Context, m Message) error {
			if cured {
				return nil
			}
			return failing(&calls, "4")(ctx, m)
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3", "4", "4", "4"}, calls)
		require.ErrorIs(t, stopped, ErrPoison)
		require.ErrorIs(t, stopped, errBad)
		var poison *PoisonError
		require.ErrorAs(t, stopped, &poison)
		require.Equal(t, 3, poison.Attempts)
		require.Equal(t, 73, w.ledger.count(), "the other partitions go on")
		require.ErrorIs(t, a.Stats().Partitions[2].Stopped, ErrPoison)
		cured = true
		a.Resume(2)
		w.waitRead(time.Second)
		t.Log(time.Since(began))
		require.Zero(t, w.ledger.again())
	})
}

func TestPoisonIsSkipped(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(10)
		w.ledger.Exempt(2) // misses two
		a := w.join(WithPoison(PoisonSkip), WithRetry(Retry{Attempts: 2, First: time.Millisecond, Limit: time.Millisecond}))
		var calls []string
		a.processWith(failing(&calls, "4", "6"))
		w.waitRead(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3", "4", "4", "5", "6", "6", "7", "8", "9", "10"}, calls)
	})
}

func TestDeadLetter(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		w.ledger.Exempt(2)
		a := w.join(WithDeadLetter("dead.orders"))
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 2 && string(m.Data) == "3" {
				return Permanent(errBad)
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Equal(t, 37, w.ledger.count(), "no stream stores the dead letter yet: the partition waits")
		ctx := w.ctx(time.Minute)
		dead, err := w.js.CreateStream(ctx, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, Storage: jetstream.MemoryStorage})
		require.NoError(t, err)
		w.waitRead(15 * time.Second)
		m, err := dead.GetMsg(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, "3", string(m.Data))
		require.Equal(t, "bad", m.Header.Get(HeaderReason))
		require.Equal(t, "2", m.Header.Get(HeaderPartition))
		require.Equal(t, "ORDERS", m.Header.Get(HeaderStream))
		require.Equal(t, "orders.2", m.Header.Get(HeaderSubject))
		require.Equal(t, "1", m.Header.Get(HeaderAttempts))
		require.Equal(t, "19", m.Header.Get(HeaderSequence))
		info, err := dead.Info(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, info.State.Msgs)
	})
}

func TestPanicCountsAsAnError(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(3)
		a := w.join()
		tries := 0
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 1 && string(m.Data) == "2" {
				if tries++; tries < 3 {
					panic("oh")
				}
			}
			return nil
		})
		w.waitRead(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 3, tries)
	})
}

func TestStuckHandlerHoldsBackItsPartitionOnly(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(200)
		a := w.join(WithBuffer(20, 1<<20))
		release := make(chan struct{})
		a.processWith(func(_ context.Context, m Message) error {
			if m.Partition == 5 {
				<-release
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		require.Equal(t, 7*200, w.ledger.count())
		require.LessOrEqual(t, a.Stats().Partitions[5].Buffered, 20)
		close(release)
		w.waitRead(10 * time.Second)
	})
}

// purge removes everything below a sequence.
func purge(w *world, seq uint64) {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
	require.NoError(w.t, err)
	require.NoError(w.t, s.Purge(w.ctx(time.Minute), jetstream.WithPurgeSequence(seq)))
}

func TestExpiredBeforeRead(t *testing.T) {
	for name, policy := range map[string]ExpiredPolicy{"skip": ExpiredSkip, "fail": ExpiredFail} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				w.publish(10)
				a := w.join(WithExpired(policy))
				a.process()
				w.waitRead(10 * time.Second)
				a.leave()
				w.publish(10) // sequences 81 to 160
				for p := range w.parts {
					w.ledger.Exempt(p)
				}
				purge(w, 121) // of each partition 11 to 15
				var gone []*ExpiredError
				b := w.join(WithExpired(policy), WithHooks(Hooks{OnExpired: func(e *ExpiredError) {
					w.ledger.mu.Lock()
					defer w.ledger.mu.Unlock()
					gone = append(gone, e)
				}}))
				b.process()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Len(t, gone, 8)
				for _, e := range gone {
					require.EqualValues(t, 120, e.Last)
					require.Greater(t, e.First, uint64(72))
				}
				if policy == ExpiredFail {
					require.Equal(t, 80, w.ledger.count())
					require.ErrorIs(t, b.Stats().Partitions[0].Stopped, ErrExpired)
					b.Resume()
				}
				w.waitRead(5 * time.Second)
				require.Equal(t, 80+40, w.ledger.count())
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Len(t, gone, 8, "reported once")
			})
		})
	}
}

// An idle partition whose neighbours' messages expire has lost nothing, and says so; a new owner neither reports anything.
func TestIdlePartitionLosesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		w.ledger.unjudged = true // by what is left in the stream
		w.create()
		w.publish(5)
		gone := 0
		hooks := WithHooks(Hooks{OnExpired: func(*ExpiredError) { gone++ }})
		a := w.join(hooks)
		a.process()
		w.waitRead(10 * time.Second)
		for range 10 {
			w.publish(50, 1, 2)
			w.waitRead(5 * time.Second)
			time.Sleep(7 * time.Second)
			s, err := w.js.Stream(w.ctx(time.Minute), "ORDERS")
			require.NoError(t, err)
			info, err := s.Info(w.ctx(time.Minute))
			require.NoError(t, err)
			purge(w, info.State.LastSeq-10)
		}
		time.Sleep(10 * time.Second)
		a.leave()
		b := w.join(hooks)
		b.process()
		w.publish(5)
		w.waitRead(10 * time.Second)
		synctest.Wait()
		require.Zero(t, gone)
	})
}

// Retention overtakes a slow reader.
func TestExpiredWhileReading(t *testing.T) {
	bubble(t, func(w *world) {
		_, err := w.js.CreateStream(w.ctx(time.Minute), jetstream.StreamConfig{
			Name: "ORDERS", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage, MaxMsgs: 400,
		})
		require.NoError(t, err)
		missing, gone := 0, 0
		a := w.join(WithBuffer(10, 1<<20), WithHooks(Hooks{OnExpired: func(e *ExpiredError) { gone += int(e.Last - e.First + 1) }}))
		w.ledger.Exempt(0)
		last := 0
		a.processWith(func(_ context.Context, m Message) error {
			n, _ := strconv.Atoi(string(m.Data))
			missing += n - last - 1
			last = n
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		for range 3000 {
			w.publish(1, 0)
			time.Sleep(3 * time.Millisecond)
		}
		w.waitRead(time.Minute)
		synctest.Wait()
		t.Logf("%d missing, %d reported", missing, gone)
		require.Positive(t, missing)
		require.GreaterOrEqual(t, gone, missing, "the report is an upper bound")
	}, withLayout(SubjectPerPartition("ORDERS", "orders", 1)))
}

func TestRecreatedStream(t *testing.T) {
	for name, policy := range map[string]RecreatedPolicy{"fail": RecreatedFail, "earliest": RecreatedEarliest, "latest": RecreatedLatest} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				w.publish(10)
				a := w.join(WithRecreated(policy))
				a.process()
				w.waitRead(10 * time.Second)
				time.Sleep(time.Second)
				recreate := func(n int) {
					for p := range w.parts {
						w.ledger.Forget(p)
						w.next[p] = 0
					}
					require.NoError(t, w.js.DeleteStream(w.ctx(time.Minute), "ORDERS"))
					w.create()
					for p := range w.parts {
						w.next[p] = 1000
					}
					w.publish(n)
				}
				recreate(30) // more than there was: the old offsets exist in the new stream
				time.Sleep(5 * time.Second)
				switch policy {
				case RecreatedFail:
					require.Equal(t, 80, w.ledger.count())
					require.ErrorIs(t, a.Stats().Partitions[0].Stopped, ErrStreamChanged)
					a.Resume()
					w.waitRead(5 * time.Second)
					require.Equal(t, 80+240, w.ledger.count())
				case RecreatedEarliest:
					require.Equal(t, 80+240, w.ledger.count())
				case RecreatedLatest:
					require.Less(t, w.ledger.count(), 80+240)
				}
				w.publish(5)
				w.waitRead(5 * time.Second)
				a.leave()
				recreate(5)
				b := w.join(WithRecreated(policy))
				time.Sleep(5 * time.Second)
				if policy == RecreatedFail {
					_, err := b.Fetch(w.ctx(time.Minute), 10)
					require.ErrorIs(t, err, ErrStreamChanged)
					b.Resume()
				}
				b.process()
				if policy == RecreatedLatest {
					w.publish(1)
				}
				w.waitRead(5 * time.Second)
			})
		})
	}
}

// A message larger than any limit in bytes passes.
func TestLargeMessages(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		ctx := w.ctx(time.Minute)
		big := bytes.Repeat([]byte("x"), 900<<10)
		for range 5 {
			_, err := w.js.Publish(ctx, "orders.0", big)
			require.NoError(t, err)
			_, err = w.js.Publish(ctx, "orders.0", []byte("small"))
			require.NoError(t, err)
		}
		a := w.join(WithBuffer(500, 1000))
		total := 0
		for m, err := range a.All(ctx) {
			require.NoError(t, err)
			require.Equal(t, total%2 == 0, len(m.Data) > 1000)
			if total++; total == 10 {
				break
			}
		}
	})
}
