package kv_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/stretchr/testify/require"
)

func TestLiveSeesEveryChangeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, env *natstest.Env, c *natstest.Client, b kv.Buckets) {
		sub, err := c.Conn().SubscribeSync(kv.LiveSubject(ns, "*.*"))
		require.NoError(t, err)
		require.NoError(t, kv.CheckSubscribed(t.Context(), c.Conn(), sub))
		ctx, s := t.Context(), b.Control
		next := func(want kv.Entry) {
			t.Helper()
			m, err := sub.NextMsg(time.Minute)
			require.NoError(t, err)
			got, err := kv.ParseLive(ns, m)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), got.Created, time.Second)
			require.Empty(t, want.Created)
			got.Created = time.Time{}
			if len(got.Value) == 0 {
				got.Value = nil
			}
			require.Equal(t, want, got)
		}

		put, err := s.Put(ctx, "a.put", []byte("1"), 0, 2*time.Second)
		require.NoError(t, err)
		next(kv.Entry{Key: "a.put", Value: []byte("1"), Revision: put})
		revs, err := s.Batch(ctx, []kv.Write{{Key: "a.x", Value: []byte("x")}, {Key: "deep.er.y", Value: []byte("y")}, {Key: "a.z", Value: []byte("z")}})
		require.NoError(t, err)
		next(kv.Entry{Key: "a.x", Value: []byte("x"), Revision: revs[0]})
		next(kv.Entry{Key: "a.z", Value: []byte("z"), Revision: revs[2]}) // only two-token keys are republished
		del, err := s.Delete(ctx, "a.x", revs[0])
		require.NoError(t, err)
		next(kv.Entry{Key: "a.x", Revision: del, Op: kv.Delete})
		revs, err = s.Batch(ctx, []kv.Write{{Key: "a.z", Delete: true, Expect: revs[2]}})
		require.NoError(t, err)
		next(kv.Entry{Key: "a.z", Revision: revs[0], Op: kv.Delete})
		start := time.Now()
		next(kv.Entry{Key: "a.put", Revision: revs[0] + 1, Op: kv.Expire})
		require.Less(t, time.Since(start), 2500*time.Millisecond)

		// A purge by an operator's tool is a delete too.
		bucket, err := c.JS().KeyValue(ctx, s.Bucket())
		require.NoError(t, err)
		rev, err := bucket.Put(ctx, "a.p", []byte("p"))
		require.NoError(t, err)
		next(kv.Entry{Key: "a.p", Value: []byte("p"), Revision: rev})
		require.NoError(t, bucket.Purge(ctx, "a.p"))
		next(kv.Entry{Key: "a.p", Revision: rev + 1, Op: kv.Delete})
	})
}

// With two sources of messages, a subscription still sees one order: the order of revisions.
func TestLiveOrderUnderConcurrency(t *testing.T) {
	env := single(t)
	c := env.Connect("a")
	ensure(t, c, memory())
	sub, err := c.Conn().SubscribeSync(kv.LiveSubject(ns, "heartbeat.*"))
	require.NoError(t, err)
	require.NoError(t, c.Conn().FlushTimeout(30*time.Second))
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		s := ensure(t, env.Connect("w"), memory()).Heartbeat
		wg.Go(func() {
			key, rev := "heartbeat."+string(rune('a'+w)), uint64(0)
			for range each {
				var err error
				if rev, err = s.Put(t.Context(), key, []byte("x"), rev, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	last := uint64(0)
	for range writers * each {
		m, err := sub.NextMsg(30 * time.Second)
		require.NoError(t, err)
		e, err := kv.ParseLive(ns, m)
		require.NoError(t, err)
		require.Equal(t, last+1, e.Revision)
		last = e.Revision
	}
	wg.Wait()
}

func TestParseLiveRefuses(t *testing.T) {
	for name, m := range map[string]*nats.Msg{
		"another namespace": {Subject: "_PARTI.other.live.a.b", Header: nats.Header{"Nats-Sequence": {"1"}}},
		"no revision":       {Subject: "_PARTI.orders.live.a.b"},
		"bad revision":      {Subject: "_PARTI.orders.live.a.b", Header: nats.Header{"Nats-Sequence": {"x"}}},
		"revision 0":        {Subject: "_PARTI.orders.live.a.b", Header: nats.Header{"Nats-Sequence": {"0"}}},
		"no key":            {Subject: "_PARTI.orders.live.", Header: nats.Header{"Nats-Sequence": {"1"}}},
		"one token":         {Subject: "_PARTI.orders.live.a", Header: nats.Header{"Nats-Sequence": {"1"}}},
		"three tokens":      {Subject: "_PARTI.orders.live.a.b.c", Header: nats.Header{"Nats-Sequence": {"1"}}},
	} {
		_, err := kv.ParseLive(ns, m)
		require.Error(t, err, name)
	}
}

func FuzzParseLive(f *testing.F) {
	f.Add("_PARTI.orders.live.a.b", "1", "MaxAge", "", "2026-01-02T03:04:05.123456789Z", []byte("x"))
	f.Add("_PARTI.orders.live.a.b", "18446744073709551615", "", "PURGE", "", []byte(nil))
	f.Add("_PARTI.orders.live.", "-1", "Remove", "DEL", "yesterday", []byte("x"))
	f.Fuzz(func(t *testing.T, subject, seq, reason, op, stamp string, data []byte) {
		m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
			"Nats-Sequence": {seq}, "Nats-Marker-Reason": {reason}, "KV-Operation": {op}, "Nats-Time-Stamp": {stamp},
		}}
		e, err := kv.ParseLive(ns, m)
		if err != nil {
			require.Zero(t, e)
			return
		}
		require.Equal(t, subject, kv.LiveSubject(ns, e.Key))
		require.NotZero(t, e.Revision)
		require.Equal(t, reason != "" || op == "DEL" || op == "PURGE", e.Absent())
	})
}
