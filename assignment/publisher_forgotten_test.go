package assignment

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/stretchr/testify/require"
)

// backup returns the values of a bucket, by revision.
func backup(t *testing.T, s *kv.Store) []kv.Entry {
	all, err := s.List(t.Context(), ">")
	require.NoError(t, err)
	values := slices.DeleteFunc(slices.Collect(maps.Values(all)), func(e kv.Entry) bool { return e.Absent() })
	slices.SortFunc(values, func(a, b kv.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return values
}

// Both buckets are put back to a backup, and every process is new and remembers nothing: the clock alone makes the versions new.
func TestBothBucketsRestoredAndEverythingForgotten(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		first, _ := e.steady("a", "b")
		control, beats := backup(t, e.outside.Control), backup(t, e.outside.Heartbeat)

		last := first
		for i := range 4 { // leaders come and go faster than the clock goes: the versions are ahead of it
			e.start()
			e.source.set(11 + i)
			e.source.signals <- struct{}{}
			last, _, _ = e.awaitCommit(last.Version, time.Minute)
			e.fleet.ack(last.Version)
		}
		require.GreaterOrEqual(t, last.Version, first.Version+4*versionGap)
		time.Sleep(5 * time.Minute) // and the clock is ahead again
		e.stop()

		e.fleet.call(func() {
			e.fleet.workers, e.fleet.applied, e.fleet.tick = map[string]*fakeWorker{}, 0, 0
			for _, s := range []*kv.Store{e.outside.Control, e.outside.Heartbeat} {
				require.NoError(t, e.leader.JS().DeleteStream(t.Context(), s.Stream()))
			}
			var err error
			e.buckets, err = kv.EnsureBuckets(t.Context(), e.leader.JS(), testBuckets())
			require.NoError(t, err)
			e.outside, err = kv.OpenBuckets(t.Context(), e.outside.Control.JetStream(), testBuckets().Namespace)
			require.NoError(t, err)
			e.fleet.store, e.committer.store = e.outside.Heartbeat, e.buckets.Control
			for s, values := range map[*kv.Store][]kv.Entry{e.outside.Control: control, e.outside.Heartbeat: beats} {
				for _, v := range values {
					if v.Key == "tick.tock" { // the fleet's own
						continue
					}
					_, err := s.Put(t.Context(), v.Key, v.Value, 0, 0)
					require.NoError(t, err)
				}
			}
		})
		restored, _ := e.commit()
		require.Equal(t, first.Version, restored.Version)

		e.fleet.join("a", "b")
		e.start()
		c, s, _ := e.awaitCommit(first.Version, time.Minute)
		require.Greater(t, c.Version, last.Version, "no version is used twice")
		require.Len(t, e.owners(s), 14)
		for _, slice := range s.Slices {
			for _, entry := range slice.Entries {
				require.Greater(t, entry.Epoch, last.Version, "nor an epoch: %s", entry.ID())
			}
		}
	})
}

// Where terms were shorter than the gap between them on average, the versions are ahead of the clock, and who has forgotten everything and was given
// a backup has new ones only when the clock has caught up.
func TestVersionsAheadOfTheClockAreForgotten(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		g := newPubGroup(t, env)
		p, _, _ := g.leadOn(env.Connect("a"))
		first := spread(p.NextVersion(), 1, 2, partitions(4))
		last := g.publish(p, first)
		values := backup(t, g.store)
		const terms = 5
		for range terms {
			p, _, _ = g.leadOn(env.Connect("b"))
			last = g.publish(p, touch(first, p.NextVersion(), 0))
		}
		stream, err := g.store.JetStream().Stream(t.Context(), g.store.Stream())
		require.NoError(t, err)
		require.NoError(t, stream.Purge(t.Context()))
		for _, v := range values {
			g.overwrite(v.Key, v.Value)
		}

		next := func() int64 {
			q, _, _ := g.leadOn(env.Connect("c"))
			return q.NextVersion()
		}
		require.LessOrEqual(t, next(), last.Version)
		time.Sleep((terms + 1) * versionGap * time.Millisecond)
		require.Greater(t, next(), last.Version)
	})
}

// What is observed has a monotonic reading, so that no clock that is set matters. In real time: in virtual time there are no such readings.
func TestObservationsAreMonotonic(t *testing.T) {
	g := newPubGroup(t, natstest.Single(t))
	monotonic := func(at time.Time) {
		t.Helper()
		require.NotZero(t, at)
		require.NotEqual(t, at.Round(0), at, "Round strips the monotonic reading, where there is one")
	}
	p, _, _ := g.leadOn(g.env.Connect("a"))
	g.publish(p, spread(p.NextVersion(), 1, 2, partitions(4)))
	monotonic(p.LastCommitObservedAt())
	monotonic(p.LastRebalanceTime())
	q, _, _ := g.leadOn(g.env.Connect("b"))
	monotonic(q.LastCommitObservedAt())
	require.Zero(t, q.LastRebalanceTime())
}
