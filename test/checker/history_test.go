package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

var (
	a1 = Holder{"a", "a1"}
	a2 = Holder{"a", "a2"}
	b1 = Holder{"b", "b1"}
	b2 = Holder{"b", "b2"}
	c1 = Holder{"c", "c1"}
)

var source = []string{"p1", "p2", "p3", "p4"}

// begin makes the history that every case goes on from: a leads, a has p1 and p2, b has p3 and p4, both have acknowledged it.
func (f *forge) begin() (v int64) {
	f.beat(a1)
	f.beat(b1)
	f.acquire(a1)
	f.c.ExpectSource(source, 0)
	v = f.version + 1
	f.commit(nil, grant{Holder: a1, entries: own(v, "p1", "p2")}, grant{Holder: b1, entries: own(v, "p3", "p4")})
	f.beat(a1, f.ack(v))
	f.beat(b1, f.ack(v))
	return v
}

// stay are the grants of begin.
func (f *forge) stay(v int64) []grant {
	return []grant{{Holder: a1, entries: own(v, "p1", "p2")}, {Holder: b1, entries: own(v, "p3", "p4")}}
}

// moved are the grants of the next version in which p2 goes to b.
func (f *forge) moved(v int64) []grant {
	next := f.version + 1
	p2 := owned{id: "p2", epoch: next, from: []Item{{a1, next}}}
	return []grant{{Holder: a1, entries: own(v, "p1")}, {Holder: b1, entries: append(own(v, "p3", "p4"), p2)}}
}

// bubble runs a forged history in virtual time.
func bubble(t *testing.T, f func(f *forge), opts ...Option) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) { f(newForge(t, env, opts...)) })
}

// accepted expects no violation, and that nothing was left unjudged.
func accepted(t *testing.T, history func(f *forge), opts ...Option) {
	t.Helper()
	bubble(t, func(f *forge) {
		defer func() {
			if f.Failed() {
				f.Log(strings.Join(append(f.rec.errors, f.rec.logs...), "\n"))
			}
		}()
		history(f)
		require.Empty(f, f.rules())
		require.Empty(f, f.rec.errors)
		require.Empty(f, f.c.Unjudged())
	}, opts...)
}

func TestAcceptsHandoffs(t *testing.T) {
	accepted(t, func(f *forge) {
		v1 := f.begin()
		f.publish(f.draft(nil, f.moved(v1)...))
		v2 := f.version
		f.beat(a1, f.ack(v2, run{"p2", v1})) // p2 still drains
		f.beat(b1, f.ack(v2))

		// Back to a: a1 is inherited, since it names p2.
		v3 := v2 + 1
		f.commit(nil, grant{Holder: a1, entries: append(own(v1, "p1"), owned{id: "p2", epoch: v3, from: []Item{{a1, v2}, {b1, v3}}})},
			grant{Holder: b1, entries: own(v1, "p3", "p4")})
		f.beat(a1, f.ack(v3))
		f.beat(b1, f.ack(v3))

		// To b again: both are proved released by now, but a1 is the owner before.
		v4 := v3 + 1
		f.commit(nil, grant{Holder: a1, entries: own(v1, "p1")},
			grant{Holder: b1, entries: append(own(v1, "p3", "p4"), owned{id: "p2", epoch: v4, from: []Item{{a1, v4}}})})
		f.beat(b1, f.ack(v4))
		f.beat(a1, f.ack(v4))

		// Parked, and taken up again by a worker that joined; p4 leaves the source while b may run it.
		f.beat(c1)
		f.c.ExpectSource([]string{"p1", "p2", "p3"}, 0)
		v5 := v4 + 1
		f.commit([]owned{{id: "p2", from: []Item{{b1, v5}}}, {id: "p4", from: []Item{{b1, v5}}, retire: true}},
			grant{Holder: a1, entries: own(v1, "p1")}, grant{Holder: b1, entries: own(v1, "p3")}, grant{Holder: c1})
		f.beat(b1, f.ack(v5, run{"p4", v1})) // p2 is released, p4 is not
		v6 := v5 + 1
		f.commit([]owned{{id: "p4", from: []Item{{b1, v5}}, retire: true}},
			grant{Holder: a1, entries: own(v1, "p1")}, grant{Holder: b1, entries: own(v1, "p3")}, grant{Holder: c1, entries: own(v6, "p2")})
		f.beat(b1, f.ack(v6))
		f.commit(nil, grant{Holder: a1, entries: own(v1, "p1")}, grant{Holder: b1, entries: own(v1, "p3")},
			grant{Holder: c1, entries: own(v6, "p2")})

		require.Equal(f, map[string]string{"p1": "a", "p2": "c", "p3": "b"}, f.c.Owners())
		last, ok := f.c.LastCommit()
		require.True(f, ok)
		require.Equal(f, f.version, last.Version)
		require.Len(f, f.c.Commits(), 7)
		second := f.c.Commits()[1]
		require.Equal(f, []int{1, 0}, []int{second.Moved, second.Least})
	})
}

func TestAcceptsDeathsAndReturns(t *testing.T) {
	accepted(t, func(f *forge) {
		v1 := f.begin()
		// b dies; the server says so. a goes on.
		for range 3 {
			time.Sleep(2 * time.Second)
			f.beat(a1)
			f.renew()
		}
		v2 := f.version + 1
		f.commit(nil, grant{Holder: a1, entries: append(own(v1, "p1", "p2"), own(v2, "p3", "p4")...)}) // b1's key has expired: proved
		f.beat(a1, f.ack(v2))

		// b returns as another incarnation, and gets one back.
		f.beat(b2, over("expiry"))
		v3 := v2 + 1
		f.commit(nil, grant{Holder: a1, entries: append(own(v1, "p1", "p2"), own(v2, "p3")...)},
			grant{Holder: b2, entries: []owned{{id: "p4", epoch: v3, from: []Item{{a1, v3}}}}})
		f.beat(b2, f.ack(v3))
		f.beat(a1, f.ack(v3))

		// a leaves: release of the lead, b takes over; the first version of a term is far above.
		f.beat(a1, state("draining"))
		f.remove(keyLeader)
		f.acquire(b2)
		f.version += 65_536 - 1
		v4 := f.version + 1
		f.commit(nil, grant{Holder: a1, entries: own(v1, "p1", "p2")}, grant{Holder: b2, entries: []owned{
			{id: "p3", epoch: v4, from: []Item{{a1, v4}}}, {id: "p4", epoch: v3, from: []Item{{a1, v3}}}}})
		f.beat(a1, f.ack(v4), state("left"))

		// a2 over the last words of a1; then the key is deleted, and a waits a TTL with its next life.
		f.beat(a2, over("left"))
		v5 := v4 + 1
		f.commit(nil, grant{Holder: a2, entries: own(v5, "p1", "p2")}, grant{Holder: b2, entries: []owned{
			{id: "p3", epoch: v4}, {id: "p4", epoch: v3, from: []Item{{a1, v3}}}}})
		f.beat(b2, f.ack(v5))
		f.remove(keyHeartbeat + "a")
		for range 2 {
			time.Sleep(forgeTTL / 2)
			f.beat(b2)
		}
		f.beat(Holder{"a", "a3"})
		v6 := v5 + 1
		f.commit(nil, grant{Holder: Holder{"a", "a3"}, entries: own(v6, "p1", "p2")}, grant{Holder: b2, entries: []owned{
			{id: "p3", epoch: v4}, {id: "p4", epoch: v3, from: []Item{{a1, v3}}}}}) // one TTL has passed
		f.beat(Holder{"a", "a4"}, over("own"))
	})
}

// The leader key expires instead of being released; a worker that does not speak the protocol takes part.
func TestAcceptsExpiredLeadAndPlainWorkers(t *testing.T) {
	accepted(t, func(f *forge) {
		v1 := f.begin()
		for range 6 {
			time.Sleep(2 * time.Second)
			f.beat(a1)
			f.beat(b1)
		}
		f.write(keyHeartbeat+"old", []byte(time.Now().Format(time.RFC3339)), false)
		f.acquire(b1)
		f.version += 65_536
		f.commit(nil, append(f.moved(v1), grant{Holder: Holder{Worker: "old"}})...)
		f.beat(b1, f.ack(f.version))
	})
}

func TestAcceptsShards(t *testing.T) {
	accepted(t, func(f *forge) {
		var grants []grant
		v := f.version + 1
		for i := range 70 {
			h := Holder{fmt.Sprintf("w-%02d", i), "x"}
			f.beat(h)
			grants = append(grants, grant{Holder: h, entries: own(v, fmt.Sprintf("q-%02d", i))})
		}
		f.acquire(grants[0].Holder)
		d := f.draft(nil, grants...)
		d.shardSize = 25
		f.publish(d)
		f.beat(grants[69].Holder, f.ack(v))
		require.Len(f, f.c.Owners(), 70)
	})
}

// The commit key is deleted, then an old commit is put back, then the buckets are recreated: each time everything is reissued.
func TestAcceptsDeclaredLosses(t *testing.T) {
	accepted(t, func(f *forge) {
		f.begin()
		first := f.commits[f.version]
		reissue := func(version int64) {
			from := []Item{{a1, version}, {b1, version}}
			var g []grant
			for i, h := range []Holder{a1, b1} {
				g = append(g, grant{Holder: h})
				for _, id := range source[2*i : 2*i+2] {
					g[i].entries = append(g[i].entries, owned{id: id, epoch: version, from: from})
				}
			}
			f.commit(nil, g...)
			f.beat(a1, f.ack(version))
			f.beat(b1, f.ack(version))
		}
		time.Sleep(2 * time.Second)
		f.c.AllowStoreLoss()
		f.remove(keyCommit)
		reissue(f.version + 1)

		f.c.AllowStoreLoss()
		old, err := encode(first)
		require.NoError(f, err)
		f.write(keyCommit, old, true)
		reissue(f.version + 1)

		f.c.AllowStoreLoss()
		require.NoError(f, f.js.DeleteStream(f.Context(), "KV_ns-control"))
		f.createStream("ns-control", 0)
		f.acquire(b1)
		f.version += 65_536
		reissue(f.version + 1)

		f.c.AllowStoreLoss() // of something that cannot be seen
		reissue(f.version + 1)
		all := f.c.Commits()
		require.Len(f, all, 5)
		require.False(f, all[0].Reissued)
		for _, d := range all[1:] {
			require.True(f, d.Reissued)
		}
	})
}

func TestAcceptsChunks(t *testing.T) {
	accepted(t, func(f *forge) {
		chunked(f, f.begin(), false, false)
		require.Len(f, f.c.Owners(), 20_004)
	})
}
