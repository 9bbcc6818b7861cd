package assignment

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func startMonitor(e *calcEnv, changes ...func(*WorkerMonitor)) *WorkerMonitor {
	m, err := NewWorkerMonitor(MonitorConfig{
		Heartbeats: e.buckets.Heartbeat, Namespace: "g", HeartbeatTTL: testTTL, RequestTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(e.t, err)
	for _, c := range changes {
		c(m)
	}
	require.NoError(e.t, m.Start())
	require.ErrorIs(e.t, m.Start(), types.ErrAlreadyStarted)
	e.t.Cleanup(func() { require.NoError(e.t, m.Stop(context.Background())) })
	return m
}

func drained(m *WorkerMonitor) bool {
	select {
	case <-m.Changed():
		return false
	default:
		return true
	}
}

func TestMonitorHearsAndIsSilentOnRefreshes(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a")
		m := startMonitor(e)
		env.WaitFor(time.Second, "first listing", func() bool { return m.Workers().Listings > 0 })
		listings := m.Workers().Listings
		e.fleet.join("b")
		env.WaitFor(10*time.Millisecond, "join", func() bool { return len(m.Workers().Members) == 2 })
		drained(m)
		e.fleet.change(func(*types.Heartbeat) {}, "a", "b")
		time.Sleep(time.Millisecond)
		require.True(t, drained(m), "routine refreshes")
		require.Equal(t, listings, m.Workers().Listings)
		e.fleet.change(func(h *types.Heartbeat) { h.Labels = []string{"x"} }, "a")
		time.Sleep(time.Millisecond)
		require.False(t, drained(m), "labels")
		e.fleet.crash("b")
		began := time.Now()
		env.WaitFor(time.Minute, "expiry", func() bool { return m.Workers().Expired["b"] })
		require.Less(t, time.Since(began), testTTL+500*time.Millisecond)
		e.fleet.remove("a")
		time.Sleep(time.Millisecond)
		require.Empty(t, m.Workers().Members)
		require.NotContains(t, m.Workers().Expired, "a")
	})
}

// A key that cannot be read, of a worker or of nobody, is logged once while it is there, however often it is looked at.
func TestMonitorComplainsOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a")
		var log natstest.Buffer
		m := startMonitor(e, func(m *WorkerMonitor) { m.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		bucket, err := env.Connect("scribe").JS().KeyValue(t.Context(), "g-heartbeat")
		require.NoError(t, err)
		said := func(key string) int { return strings.Count(log.String(), key) }
		const nobody, worker = "heartbeat.=/_-", "heartbeat.ghost"
		for turn := 1; turn <= 2; turn++ {
			time.Sleep(time.Second) // a listing begins at every half of a TTL
			for _, key := range []string{nobody, worker, nobody} {
				_, err := bucket.PutString(t.Context(), key, "hello")
				require.NoError(t, err)
			}
			before := m.Workers().Listings
			time.Sleep(10 * testTTL)
			require.Greater(t, m.Workers().Listings, before+10)
			require.Equal(t, turn, said(nobody), log.String())
			require.Equal(t, turn, said("ghost"), log.String())
			for _, key := range []string{nobody, worker} {
				require.NoError(t, bucket.Delete(t.Context(), key))
			}
			time.Sleep(testTTL)
		}
		require.Equal(t, 4, said("WARN"), log.String())

		// What was missed while nobody listened counts as well.
		l := newLedger(time.Time{})
		put := kv.Entry{Key: nobody, Revision: 7, Op: kv.Put}
		_, bad := l.observe(put)
		require.Error(t, bad)
		l.merge(listing{entries: map[string]kv.Entry{}})
		require.Empty(t, l.refused, "it is gone")
	})
}

func TestMonitorAfterACut(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a", "b")
		m := startMonitor(e)
		time.Sleep(time.Second)
		for _, d := range []time.Duration{time.Second, 8 * time.Second, 25 * time.Second} {
			e.leader.Gate().Cut()
			e.fleet.join("c")
			e.fleet.leave("b")
			time.Sleep(d)
			e.leader.Gate().Heal()
			env.WaitFor(time.Second, "what was missed", func() bool {
				v := m.Workers()
				return v.Members["c"].Incarnation == e.fleet.holder("c").Incarnation && v.Members["b"].State != types.WorkerActive
			})
			require.Less(t, time.Since(m.Workers().Trouble), time.Second)
			e.fleet.join("b")
			time.Sleep(time.Second)
		}
	})
}

func TestMonitorSeesAnotherBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		for range 20 {
			e.fleet.change(func(*types.Heartbeat) {}, func() []string { e.fleet.join("a"); return []string{"a"} }()...)
		}
		m := startMonitor(e)
		time.Sleep(time.Second)
		require.NoError(t, e.leader.JS().DeleteStream(t.Context(), e.buckets.Heartbeat.Stream()))
		_, err := kv.EnsureBuckets(t.Context(), e.leader.JS(), testBuckets())
		require.NoError(t, err)
		e.fleet.join("n")
		env.WaitFor(testTTL, "the new bucket", func() bool {
			v := m.Workers()
			_, old := v.Members["a"]
			return !old && v.Members["n"].WorkerID == "n"
		})
	})
}

func TestMonitorOverflow(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		busy, free := make(chan struct{}), make(chan struct{})
		var block sync.Once
		m := startMonitor(e, func(m *WorkerMonitor) {
			m.buffer = 1
			m.cfg.OnListing = func(error, int, time.Time) {
				block.Do(func() { close(busy); <-free }) // on the goroutine that reads the feed
			}
		})
		<-busy
		nc := e.outside.Heartbeat.JetStream().Conn()
		for i := range 3000 {
			require.NoError(t, nc.Publish(fmt.Sprintf("$KV.g-heartbeat.heartbeat.w%d", i%1000), beat(fmt.Sprintf("w%d", i%1000), "1", int64(i))))
		}
		require.NoError(t, nc.Flush())
		time.Sleep(10 * time.Millisecond)
		close(free)
		env.WaitFor(time.Second, "everything", func() bool { return len(m.Workers().Members) == 1000 && m.Workers().Applied == 2999 })
		time.Sleep(time.Second)
		v := m.Workers()
		for i := range 1000 {
			require.Equal(t, int64(2000+i), v.Members[fmt.Sprintf("w%d", i)].AppliedVersion)
		}
		require.Greater(t, v.Listings, 1, "messages were dropped, so all were listed")
	})
}

func beat(worker, incarnation string, applied int64, change ...func(*types.Heartbeat)) []byte {
	h := types.Heartbeat{
		WorkerID: worker, Incarnation: incarnation, SchemaVersion: 1, Capabilities: types.CapAckV1, State: types.WorkerActive,
		AppliedVersion: applied, ClaimedOver: types.ClaimedNothing,
	}
	for _, c := range change {
		c(&h)
	}
	b, err := h.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func names(p string) func(*types.Heartbeat) {
	return func(h *types.Heartbeat) { h.Unreturned = append(h.Unreturned, types.Run{Partition: p, Epoch: 1}) }
}

func inState(s types.WorkerState) func(*types.Heartbeat) {
	return func(h *types.Heartbeat) { h.State = s }
}

func over(o types.ClaimedOver) func(*types.Heartbeat) {
	return func(h *types.Heartbeat) { h.ClaimedOver = o }
}

func TestReleased(t *testing.T) {
	live := func(rev uint64, v []byte) func(*ledger) {
		return func(l *ledger) { l.observe(kv.Entry{Key: "heartbeat.w", Value: v, Revision: rev}) }
	}
	marker := func(rev uint64, op kv.Op) func(*ledger) {
		return func(l *ledger) { l.observe(kv.Entry{Key: "heartbeat.w", Revision: rev, Op: op}) }
	}
	list := func(es ...kv.Entry) func(*ledger) {
		return func(l *ledger) {
			in := listing{mark: l.mark(), entries: map[string]kv.Entry{}}
			for _, e := range es {
				in.entries[e.Key] = e
			}
			if ok, _, _ := l.merge(in); !ok {
				panic("listing refused")
			}
		}
	}
	w := func(rev uint64, v []byte) kv.Entry { return kv.Entry{Key: "heartbeat.w", Value: v, Revision: rev} }
	gone := func(rev uint64) kv.Entry { return kv.Entry{Key: "heartbeat.w", Revision: rev, Op: kv.Expire} }
	other := func(rev uint64, applied int64) kv.Entry {
		return kv.Entry{Key: "heartbeat.o", Value: beat("o", "o1", applied), Revision: rev}
	}
	cases := []struct {
		name string
		do   []func(*ledger)
		want bool
	}{
		{"never seen", nil, false},
		{"behind", []func(*ledger){live(1, beat("w", "i", 9))}, false},
		{"applied", []func(*ledger){live(1, beat("w", "i", 10))}, true},
		{"applied and names it", []func(*ledger){live(1, beat("w", "i", 10, names("p")))}, false},
		{"applied and names another", []func(*ledger){live(1, beat("w", "i", 10, names("q")))}, true},
		{"list of an older heartbeat", []func(*ledger){live(1, beat("w", "i", 9)), live(2, beat("w", "i", 10, names("p")))}, false},
		{"stale entry is ignored", []func(*ledger){live(2, beat("w", "i", 10, names("p"))), live(1, beat("w", "i", 10))}, false},
		{"another incarnation applied", []func(*ledger){live(1, beat("w", "j", 10))}, false},
		{"left", []func(*ledger){live(1, beat("w", "i", 3, inState(types.WorkerLeft)))}, true},
		{"left and names it", []func(*ledger){live(1, beat("w", "i", 3, inState(types.WorkerLeft), names("p")))}, false},
		{"restarting", []func(*ledger){live(1, beat("w", "i", 3, inState(types.WorkerRestarting)))}, true},
		{"draining", []func(*ledger){live(1, beat("w", "i", 3, inState(types.WorkerDraining)))}, false},
		{"proof outlives the key", []func(*ledger){live(1, beat("w", "i", 10)), marker(2, kv.Delete), list(other(3, 1))}, true},
		{"proof outlives the incarnation", []func(*ledger){live(1, beat("w", "i", 10)), live(2, beat("w", "j", 0))}, true},
		{"marker only heard", []func(*ledger){live(1, beat("w", "i", 3)), marker(2, kv.Expire)}, false},
		{"marker listed", []func(*ledger){live(1, beat("w", "i", 3)), marker(2, kv.Expire), list(gone(2))}, true},
		{"marker listed, holder never seen", []func(*ledger){list(gone(2), other(3, 9))}, false},
		{"marker listed after the commit", []func(*ledger){list(gone(2), other(3, 10))}, true},
		{"marker of a delete", []func(*ledger){live(1, beat("w", "i", 3)), marker(2, kv.Delete), list(kv.Entry{Key: "heartbeat.w", Revision: 2, Op: kv.Delete})}, false},
		{"vanished", []func(*ledger){live(1, beat("w", "i", 3)), list(other(2, 10))}, false},
		{"claimed over nothing", []func(*ledger){live(1, beat("w", "i", 3)), live(5, beat("w", "j", 0))}, false},
		{"claimed over its expiry", []func(*ledger){live(1, beat("w", "i", 3)), live(5, beat("w", "j", 0, over(types.ClaimedExpiry)))}, true},
		{"claimed over its own", []func(*ledger){live(1, beat("w", "i", 3)), live(5, beat("w", "j", 0, over(types.ClaimedOwn)))}, true},
		{"claim of an incarnation that may be earlier", []func(*ledger){list(w(5, beat("w", "j", 9, over(types.ClaimedExpiry))))}, false},
		{"claim of one that applied it", []func(*ledger){list(w(5, beat("w", "j", 10, over(types.ClaimedExpiry))))}, true},
		{"claim seen beside one that applied it", []func(*ledger){list(w(5, beat("w", "j", 0, over(types.ClaimedLeft))), other(6, 10))}, true},
		{"unreadable", []func(*ledger){live(1, beat("w", "i", 3)), live(2, []byte("{"))}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(time.Time{})
			for _, do := range c.do {
				do(l)
			}
			require.Equal(t, c.want, l.released(types.Holder{Worker: "w", Incarnation: "i"}, 10, "p"))
		})
	}
}

func TestSuspects(t *testing.T) {
	l := newLedger(time.Time{})
	put := func(rev uint64, worker string, v []byte) {
		l.observe(kv.Entry{Key: "heartbeat." + worker, Value: v, Revision: rev})
	}
	put(1, "alive", beat("alive", "1", 0))
	put(2, "left", beat("left", "1", 0, inState(types.WorkerLeft)))
	put(3, "stuck", beat("stuck", "1", 0, inState(types.WorkerLeft), names("p")))
	put(4, "new", beat("new", "1", 0))
	put(5, "new", beat("new", "2", 0))
	put(6, "again", beat("again", "1", 0))
	put(7, "again", beat("again", "2", 0, over(types.ClaimedExpiry)))
	put(8, "del", beat("del", "1", 0))
	l.observe(kv.Entry{Key: "heartbeat.del", Revision: 9, Op: kv.Delete})
	require.Equal(t, []types.Holder{
		{Worker: "again", Incarnation: "2"},
		{Worker: "alive", Incarnation: "1"},
		{Worker: "del", Incarnation: "1"},
		{Worker: "new", Incarnation: "1"},
		{Worker: "new", Incarnation: "2"},
		{Worker: "stuck", Incarnation: "1"},
	}, l.suspects())
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger(time.Time{})
	for i := range 5000 {
		l.observe(kv.Entry{Key: "heartbeat.w", Value: beat("w", fmt.Sprint(i), 0), Revision: uint64(i + 1)})
		id := fmt.Sprintf("w%d", i)
		l.observe(kv.Entry{Key: "heartbeat." + id, Value: beat(id, "1", 0), Revision: uint64(i + 1)})
	}
	l.merge(listing{mark: l.mark(), entries: map[string]kv.Entry{"heartbeat.z": {Key: "heartbeat.z", Value: beat("z", "1", 0), Revision: 6000}}})
	require.Len(t, l.records, 1)
	require.Len(t, l.past, maxPast)
	require.Len(t, l.order, maxPast)
}

func TestLedgerRefusesOldListings(t *testing.T) {
	l := newLedger(time.Time{})
	l.observe(kv.Entry{Key: "heartbeat.a", Value: beat("a", "1", 0), Revision: 5})
	ok, _, _ := l.merge(listing{mark: l.mark(), entries: map[string]kv.Entry{}})
	require.False(t, ok)
	mark := l.mark()
	l.observe(kv.Entry{Key: "heartbeat.b", Value: beat("b", "1", 0), Revision: 7})
	// The listing began before b was heard of.
	ok, _, _ = l.merge(listing{mark: mark, entries: map[string]kv.Entry{"heartbeat.a": {Key: "heartbeat.a", Value: beat("a", "1", 0), Revision: 6}}})
	require.True(t, ok)
	require.Contains(t, l.snapshot().Members, "b")
}
