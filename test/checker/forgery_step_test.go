package checker

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keepAlive lets time pass in which a and b send heartbeats and a renews its lead.
func (f *forge) keepAlive(d time.Duration, holders ...Holder) {
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		for _, h := range holders {
			f.beat(h)
		}
		f.renew()
	}
}

// toB moves p2 to b with the `from` given, and keeps the rest.
func (f *forge) toB(v int64, from ...Item) {
	next := f.version + 1
	f.commit(nil, grant{Holder: a1, entries: own(v, "p1")},
		grant{Holder: b1, entries: append(own(v, "p3", "p4"), owned{id: "p2", epoch: next, from: from})})
}

// toA moves p2 back to a with the `from` given.
func (f *forge) toA(v int64, from ...Item) {
	next := f.version + 1
	f.commit(nil, grant{Holder: a1, entries: append(own(v, "p1"), owned{id: "p2", epoch: next, from: from})},
		grant{Holder: b1, entries: own(v, "p3", "p4")})
}

// graced lets b restart with a grace of a minute, and returns what the commit says that notes it.
func (f *forge) graced(v int64) []grant {
	f.beat(b1, state("restarting"))
	g := f.stay(v)
	g[1].grace = time.Now().Add(time.Minute).UnixMilli()
	f.commit(nil, g...)
	return g
}

// A grace that is kept, and one whose worker has come back and left, breaks no rule.
func TestForgedGraceThatIsKept(t *testing.T) {
	bubble(t, func(f *forge) {
		g := f.graced(f.begin())
		f.commit(nil, g...)
		f.beat(b2, over("restarting"))
		f.beat(b2, state("left"))
		f.commit(nil, grant{Holder: a1, entries: append(g[0].entries, own(f.version+1, "p3", "p4")...)})
		require.Empty(f, f.rules())
	})
}

func TestForgedSteps(t *testing.T) { runForgeries(t, forgedSteps()) }

func forgedSteps() []forgery {
	return []forgery{
		{"new owner with the old epoch", []Rule{EpochNew}, func(f *forge, v int64) {
			g := f.moved(v)
			g[1].entries[2].epoch = v
			f.commit(nil, g...)
		}},
		{"new incarnation with the old epoch", []Rule{EpochNew}, func(f *forge, v int64) {
			f.beat(b1, state("left"))
			f.beat(b2, over("left"))
			f.commit(nil, f.stay(v)[0], grant{Holder: b2, entries: own(v, "p3", "p4")})
		}},
		{"epoch between the old and the new version", []Rule{EpochNew}, func(f *forge, v int64) {
			f.version += 10
			g := f.moved(v)
			g[1].entries[2].epoch--
			f.commit(nil, g...)
		}},
		{"old epoch after having been parked", []Rule{EpochNew}, func(f *forge, v int64) {
			from := []Item{{b1, v + 1}}
			f.commit([]owned{{id: "p4", from: from}}, f.stay(v)[0], grant{Holder: b1, entries: own(v, "p3")})
			f.commit(nil, f.stay(v)[0], grant{Holder: b1, entries: append(own(v, "p3"), owned{id: "p4", epoch: v, from: from})})
		}},
		{"taken within a restart grace", []Rule{GraceKept}, func(f *forge, v int64) {
			g := f.graced(v)
			f.commit(nil, grant{Holder: a1, entries: append(g[0].entries, own(f.version+1, "p3", "p4")...)})
		}},
		{"parked within a restart grace", []Rule{GraceKept}, func(f *forge, v int64) {
			g := f.graced(v)
			g[1].entries = own(v, "p3")
			f.commit([]owned{{id: "p4"}}, g...)
		}},
		{"same owner with a new epoch", []Rule{EpochKept}, func(f *forge, v int64) {
			f.commit(nil, f.stay(v)[0], grant{Holder: b1, entries: own(v+1, "p3", "p4")})
		}},
		{"everything reissued without need", []Rule{EpochKept, FromForeign}, func(f *forge, v int64) {
			from := []Item{{a1, v + 1}, {b1, v + 1}}
			e := func(id string) owned { return owned{id: id, epoch: v + 1, from: from} }
			f.commit(nil, grant{Holder: a1, entries: []owned{e("p1"), e("p2")}}, grant{Holder: b1, entries: []owned{e("p3"), e("p4")}})
		}},
		{"epoch above the version", []Rule{EpochForm, EpochNew}, func(f *forge, v int64) {
			g := f.moved(v)
			g[1].entries[2].epoch++
			f.commit(nil, g...)
		}},
		{"no epoch", []Rule{EpochForm, EpochKept}, func(f *forge, v int64) {
			g := f.stay(v)
			g[0].entries[0].epoch = 0
			f.commit(nil, g...)
		}},
		{"parked with an epoch", []Rule{EpochForm}, func(f *forge, v int64) {
			f.commit([]owned{{id: "p4", epoch: v, from: []Item{{b1, v + 1}}}}, f.stay(v)[0], grant{Holder: b1, entries: own(v, "p3")})
		}},
		{"loss not reissued", []Rule{Reissued}, func(f *forge, v int64) {
			f.keepAlive(2*time.Second, a1, b1)
			f.c.AllowStoreLoss()
			f.remove(keyCommit)
			f.commit(nil, f.stay(v)...)
		}},
		{"reissue forgets a live incarnation", []Rule{Reissued}, func(f *forge, v int64) {
			f.beat(c1) // it has nothing, says the last commit; the lost one may have said otherwise
			f.keepAlive(2*time.Second, a1, b1, c1)
			f.c.AllowStoreLoss()
			f.remove(keyCommit)
			from := []Item{{a1, v + 1}, {b1, v + 1}}
			e := func(id string) owned { return owned{id: id, epoch: v + 1, from: from} }
			f.commit(nil, grant{Holder: a1, entries: []owned{e("p1"), e("p2")}}, grant{Holder: b1, entries: []owned{e("p3"), e("p4")}})
		}},
		{"an old commit put back and built upon", []Rule{Reissued}, func(f *forge, v int64) {
			first := f.commits[v]
			f.commit(nil, f.stay(v)...)
			f.keepAlive(2*time.Second, a1, b1)
			f.c.AllowStoreLoss()
			old, err := encode(first)
			require.NoError(f, err)
			f.write(keyCommit, old, true)
			f.commit(nil, f.stay(v)...)
		}},
		{"from out of order", []Rule{FromForm}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.toA(v, Item{b1, v + 2}, Item{a1, v + 1})
		}},
		{"from with an incarnation twice", []Rule{FromForm, FromForeign}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v}, Item{a1, v + 1})
		}},
		{"from with a version to come", []Rule{FromForm, FromForeign}, func(f *forge, v int64) { f.toB(v, Item{a1, v + 2}) }},
		{"former owner missing", []Rule{FromMissing}, func(f *forge, v int64) { f.toB(v) }},
		{"former owner under another incarnation", []Rule{FromMissing, FromForeign}, func(f *forge, v int64) { f.toB(v, Item{a2, v + 1}) }},
		{"inherited item dropped", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.toA(v, Item{b1, v + 2})
		}},
		{"inherited item dropped while parked", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.commit([]owned{{id: "p2", from: []Item{{b1, v + 2}}}}, grant{Holder: a1, entries: own(v, "p1")}, grant{Holder: b1, entries: own(v, "p3", "p4")})
		}},
		{"parked and forgotten", []Rule{FromMissing}, func(f *forge, v int64) {
			f.commit([]owned{{id: "p4"}}, f.stay(v)[0], grant{Holder: b1, entries: own(v, "p3")})
		}},
		{"left the source and forgotten", []Rule{FromMissing}, func(f *forge, v int64) {
			f.c.ExpectSource([]string{"p1", "p2", "p3"}, 0)
			f.commit(nil, f.stay(v)[0], grant{Holder: b1, entries: own(v, "p3")})
		}},
		{"pruned though an acknowledgement names it", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.beat(a1, f.ack(v+1, run{"p2", v}))
			f.toA(v, Item{b1, v + 2})
		}},
		{"pruned though it is named under another epoch", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.beat(a1, f.ack(v+1, run{"p2", 1}))
			f.toA(v, Item{b1, v + 2})
		}},
		{"pruned by an acknowledgement that comes later", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.toA(v, Item{b1, v + 2})
			f.beat(a1, f.ack(v+1))
		}},
		{"pruned by version of one and list of another heartbeat", []Rule{FromMissing}, func(f *forge, v int64) {
			f.beat(a1, f.ack(v)) // nothing is named, but of an older version
			f.toB(v, Item{a1, v + 1})
			f.beat(a1, f.ack(v+1, run{"p2", v}))
			f.toA(v, Item{b1, v + 2})
		}},
		{"pruned while it stays", []Rule{FromMissing}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.commit(nil, grant{Holder: a1, entries: own(v, "p1")}, grant{Holder: b1, entries: append(own(v, "p3", "p4"), owned{id: "p2", epoch: v + 1})})
		}},
		{"pruned by last words that name it", []Rule{FromMissing}, func(f *forge, v int64) {
			f.beat(a1, state("left"), func(b *heartbeat) { b.Unreturned = []run{{"p2", v}} })
			f.toB(v)
		}},
		{"pruned by a claim over last words that name it", []Rule{FromMissing}, func(f *forge, v int64) {
			f.beat(b1, state("left"), func(b *heartbeat) { b.Unreturned = []run{{"p4", v}} })
			f.beat(b2, over("own"))
			f.commit(nil, f.stay(v)[0], grant{Holder: b2, entries: own(v+1, "p3", "p4")})
		}},
		{"pruned less than a TTL after a delete", []Rule{FromMissing}, func(f *forge, v int64) {
			f.remove(keyHeartbeat + "a")
			f.keepAlive(forgeTTL-500*time.Millisecond, b1)
			f.toB(v)
		}},
		{"pruned less than a TTL after the bucket was recreated", []Rule{FromMissing}, func(f *forge, v int64) {
			require.NoError(f, f.js.DeleteStream(f.Context(), "KV_ns-heartbeat"))
			f.createStream("ns-heartbeat", forgeTTL)
			f.keepAlive(forgeTTL - 500*time.Millisecond)
			f.beat(Holder{"d", "d1"})
			f.toB(v)
		}},
		{"a stranger in from", []Rule{FromForeign}, func(f *forge, v int64) { f.toB(v, Item{a1, v + 1}, Item{c1, v + 1}) }},
		{"former owner at the version before", []Rule{FromForeign}, func(f *forge, v int64) { f.toB(v, Item{a1, v}) }},
		{"inherited item at another version", []Rule{FromForeign}, func(f *forge, v int64) {
			f.toB(v, Item{a1, v + 1})
			f.toA(v, Item{a1, v + 2}, Item{b1, v + 2})
		}},
		{"item added while it stays", []Rule{FromForeign}, func(f *forge, v int64) {
			g := f.stay(v)
			g[0].entries[0].from = []Item{{b1, v + 1}}
			f.commit(nil, g...)
		}},
	}
}

func TestForgedHeartbeats(t *testing.T) { runForgeries(t, forgedHeartbeats()) }

func forgedHeartbeats() []forgery {
	runs := func(n int) (all []run) {
		for i := range n {
			all = append(all, run{"p" + strconv.Itoa(i), 1})
		}
		return all
	}
	change := func(mod func(b *heartbeat)) func(f *forge, v int64) {
		return func(f *forge, _ int64) { f.beat(a1, mod) }
	}
	return []forgery{
		{"unknown state", []Rule{HeartbeatForm}, change(state("odd"))},
		{"no nonce", []Rule{HeartbeatForm}, change(func(b *heartbeat) { b.Nonce = "" })},
		{"later schema", []Rule{HeartbeatForm}, change(func(b *heartbeat) { b.SchemaVersion = 2 })},
		{"unknown claim", []Rule{HeartbeatForm, HeartbeatClaim}, func(f *forge, _ int64) { f.beat(c1, over("force")) }},
		{"speaks for another", []Rule{HeartbeatForm}, func(f *forge, _ int64) {
			b := f.beats[a1]
			b.Nonce = f.next()
			f.write(keyHeartbeat+"c", b, true)
		}},
		{"acknowledgement goes back", []Rule{HeartbeatBack}, func(f *forge, v int64) {
			f.commit(nil, f.stay(v)...)
			f.beat(a1, f.ack(v+1))
			f.beat(a1, f.ack(v))
		}},
		{"acknowledgement goes back to nothing", []Rule{HeartbeatBack}, change(func(b *heartbeat) { b.AppliedVersion = 0 })},
		{"version ahead of the commits", []Rule{HeartbeatAhead}, change(func(b *heartbeat) { b.AppliedVersion++ })},
		{"version that is no commit", []Rule{HeartbeatAhead}, func(f *forge, v int64) {
			f.version += 10
			f.commit(nil, f.stay(v)...)
			f.beat(a1, func(b *heartbeat) { b.AppliedVersion = v + 5 })
		}},
		{"digest of another set", []Rule{HeartbeatDigest}, change(func(b *heartbeat) { b.AppliedDigest = hashOf(nil)[:32] })},
		{"digest though not listed", []Rule{HeartbeatDigest}, func(f *forge, v int64) {
			f.beat(c1, func(b *heartbeat) {
				f.ack(v)(b)
				b.AppliedDigest = f.digests[v][a1]
			})
		}},
		{"another term", []Rule{HeartbeatDigest}, change(func(b *heartbeat) { b.LeaderRevision++ })},
		{"claimed over an expiry that was none", []Rule{HeartbeatClaim}, func(f *forge, _ int64) { f.beat(c1, over("expiry")) }},
		{"claimed over nothing though it had expired", []Rule{HeartbeatClaim}, func(f *forge, _ int64) {
			f.keepAlive(forgeTTL+time.Second, a1)
			f.beat(b2)
		}},
		{"claimed its own that had expired", []Rule{HeartbeatClaim}, func(f *forge, _ int64) {
			f.keepAlive(forgeTTL+time.Second, a1)
			f.beat(b2, over("own"))
		}},
		{"claimed over left that was restarting", []Rule{HeartbeatClaim}, func(f *forge, _ int64) {
			f.beat(b1, state("restarting"))
			f.beat(b2, over("left"))
		}},
		{"changes what it claimed over", []Rule{HeartbeatClaim}, change(over("own"))},
		{"seized a live key", []Rule{HeartbeatSeized}, func(f *forge, _ int64) { f.beat(b2) }},
		{"seized a draining key as left", []Rule{HeartbeatSeized}, func(f *forge, _ int64) {
			f.beat(b1, state("draining"))
			f.beat(b2, over("left"))
		}},
		{"seized last words that name a run", []Rule{HeartbeatSeized}, func(f *forge, v int64) {
			f.beat(b1, state("left"), func(b *heartbeat) { b.Unreturned = []run{{"p4", v}} })
			f.beat(b2, over("left"))
		}},
		{"claimed at once after a delete", []Rule{HeartbeatWait}, func(f *forge, _ int64) {
			f.remove(keyHeartbeat + "b")
			f.keepAlive(forgeTTL-time.Second, a1)
			f.beat(b2)
		}},
		{"claimed at once in a new bucket", []Rule{HeartbeatWait}, func(f *forge, _ int64) {
			require.NoError(f, f.js.DeleteStream(f.Context(), "KV_ns-heartbeat"))
			f.createStream("ns-heartbeat", forgeTTL)
			f.beat(b2)
		}},
		{"back after its expiry", []Rule{HeartbeatRisen}, func(f *forge, _ int64) {
			f.keepAlive(forgeTTL+time.Second, a1)
			f.beat(b1)
		}},
		{"back after it was replaced", []Rule{HeartbeatRisen}, func(f *forge, _ int64) {
			f.beat(b2, over("own"))
			f.beat(b1)
		}},
		{"back after its last words", []Rule{HeartbeatRisen}, func(f *forge, _ int64) {
			f.beat(b1, state("left"))
			f.beat(b1, state("active"))
		}},
		{"65 runs named", []Rule{HeartbeatMany}, change(func(b *heartbeat) { b.Unreturned = runs(65) })},
		{"names a run from a commit that it has not applied", []Rule{HeartbeatUnreturned}, func(f *forge, v int64) {
			f.beat(a1, func(b *heartbeat) { b.Unreturned = []run{{"p2", v + 1}} })
		}},
		{"names a run without epoch", []Rule{HeartbeatUnreturned}, change(func(b *heartbeat) { b.Unreturned = []run{{"p2", 0}} })},
	}
}

func TestForgedAcknowledgements(t *testing.T) {
	cases := []struct {
		name string
		want []Rule
		do   func(f *forge, o *Oracle, v int64)
	}{
		{"named", nil, func(f *forge, _ *Oracle, v int64) { f.beat(a1, f.ack(v+1, run{"p2", v})) }},
		{"returned", nil, func(f *forge, o *Oracle, v int64) { o.End("p2", "a", v); f.beat(a1, f.ack(v+1)) }},
		{"not acknowledged yet", nil, func(f *forge, _ *Oracle, v int64) { f.beat(a1) }},
		{"another incarnation", nil, func(f *forge, _ *Oracle, v int64) {
			f.beat(a2, over("own"))
			f.beat(a2, f.ack(v+1))
		}},
		{"still runs", []Rule{HeartbeatFalse}, func(f *forge, _ *Oracle, v int64) { f.beat(a1, f.ack(v+1)) }},
		{"another one is named", []Rule{HeartbeatFalse}, func(f *forge, _ *Oracle, v int64) { f.beat(a1, f.ack(v+1, run{"p1", v})) }},
		{"regained, and the old run is not named", []Rule{HeartbeatFalse}, func(f *forge, _ *Oracle, v int64) {
			f.toA(v, Item{a1, v + 1}, Item{b1, v + 2})
			f.beat(a1, f.ack(v+2))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(f *forge) {
				o := f.c.oracle
				v := f.begin()
				o.Start("p1", "a", v)
				o.Start("p2", "a", v)
				f.toB(v, Item{a1, v + 1})
				c.do(f, o, v)
				require.Equal(f, slices.Clone(c.want), f.rules(), f.rec.errors)
			}, func(c *Checker) { WithOracle(NewOracle(source...))(c) }) // made in the bubble, as its channel must be
		})
	}
}

// A version that nobody has published, before the first commit of all.
func TestForgedFirstHeartbeat(t *testing.T) {
	bubble(t, func(f *forge) {
		f.beat(a1, func(b *heartbeat) { b.AppliedVersion = 5 })
		require.Equal(f, []Rule{HeartbeatAhead}, f.rules())
	})
}
