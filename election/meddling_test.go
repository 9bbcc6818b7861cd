package election

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// What others do to the leader key and to its bucket.

func TestOperatorDeletesTheKey(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		old := a.term(t)
		control, err := env.Connect("operator").JS().KeyValue(t.Context(), kv.ControlBucket("ns"))
		require.NoError(t, err)
		require.NoError(t, control.Delete(t.Context(), Key))
		start := time.Now()
		env.WaitFor(200*time.Millisecond, "a new term", func() bool { x, ok := a.Leading(); return ok && x.Revision > old })
		t.Logf("deleted: new term after %v", time.Since(start))
		require.ErrorIs(t, g.history(a)[1].err, types.ErrLeadershipLost)

		require.NoError(t, control.Purge(t.Context(), Key))
		old = a.term(t)
		env.WaitFor(200*time.Millisecond, "a new term", func() bool { x, ok := a.Leading(); return ok && x.Revision > old })
		g.requireClean()
	})
}

func TestKeyOverwrittenByGarbage(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		b := g.join(env.Connect("b"))
		time.Sleep(time.Second)
		old := a.term(t)
		control, err := env.Connect("operator").JS().KeyValue(t.Context(), kv.ControlBucket("ns"))
		require.NoError(t, err)
		for _, garbage := range []string{"garbage", "", `{"worker":"z","incarnation":"z","lease_seconds":3,"nonce":"z"}`} { // without a TTL: for ever
			_, err = control.Put(t.Context(), Key, []byte(garbage))
			require.NoError(t, err)
			start := time.Now()
			env.WaitFor(time.Second, "the leader notices", func() bool { return g.leader() == nil })
			env.WaitFor(lease+2*time.Second, "a new term", func() bool { return g.leader() != nil })
			t.Logf("overwritten: new term after %v", time.Since(start))
			require.Greater(t, g.leader().term(t), old)
			old = g.leader().term(t)
			info, ok := b.Leader()
			require.True(t, ok)
			require.Equal(t, old, info.Revision)
		}
		g.requireClean()
	})
}

// A value that nobody renews is replaced in time, whatever lease it claims. One that is renewed is respected, also if its lease is much
// longer than the own one.
func TestLeaseThatIsAbsurd(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newGroup(t)
		a := g.join(env.Connect("a"))
		env.WaitFor(time.Second, "a leads", leads(a))
		control, err := env.Connect("operator").JS().KeyValue(t.Context(), kv.ControlBucket("ns"))
		require.NoError(t, err)
		value := []byte(`{"worker":"z","incarnation":"z","lease_seconds":3600,"nonce":"z","commit_version":1}`)
		_, err = control.Put(t.Context(), Key, value)
		require.NoError(t, err)
		start := time.Now()
		time.Sleep(quietLeases*lease + time.Second)
		require.Nil(t, g.leader())
		require.Positive(t, a.silences())
		require.GreaterOrEqual(t, a.Quiet(), quietLeases*lease)
		env.WaitFor(mostLeases*lease, "a new term", func() bool { return g.leader() != nil })
		t.Logf("overwritten: new term after %v", time.Since(start))
		require.Less(t, time.Since(start), mostLeases*lease+2*abandonDelay)
		time.Sleep(time.Second)
		require.Less(t, a.Quiet(), lease)

		before := a.silences()
		for range 10 { // a lease of nine times the own one
			_, err = control.Put(t.Context(), Key, []byte(`{"worker":"z","incarnation":"z","lease_seconds":90,"nonce":"z"}`))
			require.NoError(t, err)
			time.Sleep(30 * time.Second)
			require.Nil(t, g.leader())
		}
		require.Equal(t, before, a.silences())
		g.requireClean()
	})
}

// Memory storage: the bucket is gone after a restart, and revisions begin again.
func TestBucketRecreated(t *testing.T) {
	natstest.Long(t)
	for _, told := range []bool{true, false} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			g := newGroup(t)
			a := g.join(env.Connect("a"))
			env.WaitFor(time.Second, "a leads", leads(a))
			b := g.join(env.Connect("b"))
			time.Sleep(time.Hour)
			require.Greater(t, a.current().revision, uint64(1000))
			require.NoError(t, a.JS().DeleteStream(t.Context(), "KV_"+kv.HeartbeatBucket("ns")))
			require.NoError(t, a.JS().DeleteStream(t.Context(), "KV_"+kv.ControlBucket("ns")))
			g.open(b.Client)
			start := time.Now()
			if told {
				a.Reset()
				b.Reset()
			}
			env.WaitFor(lease, "a's term is over", func() bool { return len(g.history(a)) >= 2 })
			require.ErrorIs(t, g.history(a)[1].err, types.ErrLeadershipLost)
			env.WaitFor(2*lease, "a leader", func() bool { return g.leader() != nil })
			t.Logf("recreated, told=%v: leader after %v", told, time.Since(start))
			time.Sleep(3 * lease)
			for _, m := range g.members {
				info, ok := m.Leader()
				require.True(t, ok)
				require.Equal(t, g.leader().term(t), info.Revision)
			}
		})
	}
}
