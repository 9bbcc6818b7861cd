package consumer

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// A connection that is closed for good ends the Reader; all calls say so, and others take over.
func TestClosedConnectionEndsTheReader(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(5)
		told := 0
		a := w.join(WithHooks(Hooks{OnError: func(int, error) { told++ }}), WithFetchWait(time.Hour, 0))
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Hour)
		ms, err := a.Fetch(ctx, 40)
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx, ms[1:]...))
		fetched := make(chan error, 1)
		go func() {
			for {
				ms, err := a.Fetch(ctx, 40)
				if err != nil {
					fetched <- err
					return
				}
				_ = a.AckLater(ms...)
			}
		}()
		b := w.join()
		time.Sleep(time.Second)
		a.dead.Store(true)
		a.client.Conn().Close()
		for name, err := range map[string]error{
			"Fetch": <-fetched, "Ack": a.Ack(ctx, ms...), "AckLater": a.AckLater(ms...), "Start": a.Start(ctx), "Seek": a.Seek(ctx, 1, Earliest()),
			"Process": a.Process(ctx, func(context.Context, Message) error { return nil }),
		} {
			require.ErrorIs(t, err, ErrReaderClosed, name)
			require.ErrorIs(t, err, parti.ErrConnectionClosed, name)
		}
		b.process()
		require.ErrorIs(t, a.Close(ctx), nats.ErrConnectionClosed, "the others were not told")
		a.jobs.Wait()
		time.Sleep(30 * time.Second)
		require.Len(t, b.Assigned(), w.parts)
		require.Less(t, told, 10*w.parts)
	})
}

// A start on a closed connection fails at once, however patient it is.
func TestStartOnAClosedConnection(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		c := env.Connect("r")
		c.Gate().Cut()
		r := startReader(t, c.JS(), parti.WithWaitForServer())
		failed := make(chan error, 1)
		go func() { failed <- r.Start(context.Background()) }()
		time.Sleep(time.Minute)
		c.Conn().Close()
		err := <-failed
		require.ErrorIs(t, err, parti.ErrConnectionClosed)
		require.ErrorIs(t, err, ErrReaderClosed)
		require.NoError(t, r.Close(context.Background()))
		c.Gate().Heal()
	})
}

// A missing permission is one, and not the lack of a server.
func TestStartWithoutPermission(t *testing.T) {
	for _, subject := range []string{"$JS.API.STREAM.INFO.KV_parti-offsets", "$JS.API.STREAM.CREATE.KV_parti-offsets", "$JS.API.STREAM.INFO.KV_group-control"} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			ctx := context.Background()
			r := startReader(t, env.Connect("r", nats.UserInfo("reader", "p")).JS(), parti.WithWaitForServer())
			err := r.Start(ctx)
			require.ErrorIs(t, err, parti.ErrPermission, subject)
			require.ErrorIs(t, err, ErrReaderClosed)
			require.ErrorContains(t, err, subject)
			require.NoError(t, r.Close(ctx))
		}, natstest.WithServerOptions(func(o *server.Options) {
			o.Users = []*server.User{{Username: "reader", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{subject}},
			}}}
		}))
	}
}

// What a start that failed had begun ends with it, not with Close.
func TestFailedStartLeavesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		ctx := context.Background()
		first := startReader(t, env.Connect("a").JS(), parti.WithWorkerID("w"))
		require.NoError(t, first.Start(ctx))
		r := startReader(t, env.Connect("b").JS(), parti.WithWorkerID("w"))
		require.ErrorIs(t, r.Start(ctx), parti.ErrWorkerIDTaken)
		ended := make(chan struct{})
		go func() { r.jobs.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Second):
			t.Error("something goes on after the failed start")
		}
		require.NoError(t, r.Close(ctx))
		require.NoError(t, first.Close(ctx))
	})
}

// A handler that ends its goroutine has failed like one that panics, and its partition goes on.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	for name, n := range map[string]int{"one at a time": 1, "in parallel": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				w.publish(5)
				var poisoned atomic.Int64
				a := w.join(WithConcurrency(n), WithRetry(Retry{2, time.Second, time.Second}), WithPoison(PoisonSkip), WithHooks(Hooks{
					OnPoison: func(e *PoisonError, _ PoisonAction) {
						require.ErrorIs(t, e, errGoexit)
						require.Equal(t, 2, e.Attempts)
						poisoned.Add(1)
						runtime.Goexit() // hooks may as well
					},
					OnCommitted: func(Offset) { runtime.Goexit() },
					OnAssigned:  func(int, int64) { runtime.Goexit() },
				}))
				w.ledger.Exempt(2)
				a.processWith(func(_ context.Context, m Message) error {
					if m.Partition == 2 && string(m.Data) == "3" {
						runtime.Goexit()
					}
					return nil
				})
				w.waitRead(time.Minute)
				require.EqualValues(t, 1, poisoned.Load())
			})
		})
	}
}

// A loop over All that ends in a panic has not acknowledged the message.
func TestPanicInALoop(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		w.publish(3, 4)
		a := w.join()
		w.waitOwned(10 * time.Second)
		ctx := w.ctx(time.Minute)
		first := func() (m Message) {
			defer func() { _ = recover() }()
			for m = range a.All(ctx) {
				panic("in the loop")
			}
			return m
		}
		require.Equal(t, "1", string(first().Data))
		for m, err := range a.All(ctx) {
			require.NoError(t, err)
			require.Equal(t, "1", string(m.Data))
			break
		}
	})
}
