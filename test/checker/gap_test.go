package checker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// unheard runs f while the checker's connection is cut.
func (f *forge) unheard(do func()) {
	f.watcher.Gate().Cut()
	f.quiet = true
	do()
	f.quiet = false
	f.watcher.Gate().Heal()
	f.env.WaitFor(5*time.Second, "the checker's reconnect", func() bool { return f.watcher.Conn().IsConnected() })
	f.c.Sync()
}

func TestJudgesWhatItDidNotHear(t *testing.T) {
	accepted(t, func(f *forge) {
		v := f.begin()
		f.unheard(func() {
			f.toB(v, Item{a1, v + 1})
			f.beat(a1, f.ack(v+1))
			f.beat(b1, f.ack(v+1))
			f.toA(v, Item{b1, v + 2})
		})
		f.beat(a1, f.ack(v+2))
		f.commit(nil, grant{Holder: a1, entries: append(own(v, "p1"), owned{id: "p2", epoch: v + 2, from: []Item{{b1, v + 2}}})},
			grant{Holder: b1, entries: own(v, "p3", "p4")})
		require.Len(f, f.c.Commits(), 4)
	})
	runForgeries(t, []forgery{
		{"forged unheard", []Rule{FromMissing}, func(f *forge, v int64) {
			f.unheard(func() {
				f.toB(v)
				f.toA(v, Item{b1, v + 2})
			})
		}},
		{"lead changed unheard, and the old one commits", []Rule{TermHolder, TermRevision}, func(f *forge, v int64) {
			old := f.term
			f.unheard(func() {
				f.succeed()
				f.renew()
			})
			d := f.draft(nil, f.stay(v)...)
			d.commit.LeaderRevision, d.commit.TermHolder = old, a1
			f.publish(d)
		}},
	})
}

// After a restart of the server everything goes on: nothing is taken for lost or recreated.
func TestSurvivesRestart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		f := newForge(t, env)
		for _, b := range []string{"ns-control", "ns-heartbeat"} {
			require.NoError(t, f.js.DeleteStream(t.Context(), "KV_"+b))
		}
		f.storage = jetstream.FileStorage
		f.createStream("ns-control", 0)
		f.createStream("ns-heartbeat", forgeTTL)
		f.attach()
		v := f.begin()
		env.Restart()
		env.WaitFor(5*time.Second, "the reconnects", func() bool {
			return f.js.Conn().Stats().Reconnects == 1 && f.watcher.Conn().Stats().Reconnects == 1
		})
		f.beat(a1)
		f.beat(b1)
		f.toB(v, Item{a1, v + 1})
		f.beat(a1, f.ack(v+1))
		f.beat(b1, f.ack(v+1))
		require.Len(t, f.c.Commits(), 2)
		require.Empty(t, f.rules(), f.rec.errors)
		require.Empty(t, f.c.Unjudged())
	})
}

// A checker that comes late believes what it finds, and judges what follows.
func TestAttachesLate(t *testing.T) {
	accepted(t, func(f *forge) {
		v := f.begin()
		f.toB(v, Item{a1, v + 1})
		f.attach()
		f.c.ExpectSource(source, 0)
		f.beat(a1, f.ack(v+1))
		f.beat(b1)
		f.renew()
		f.toA(v, Item{b1, v + 2})
		require.Len(f, f.c.Commits(), 2)
	})
	runForgeries(t, []forgery{{"after a late start", []Rule{EpochNew}, func(f *forge, v int64) {
		f.attach()
		g := f.moved(v)
		g[1].entries[2].epoch = v
		f.commit(nil, g...)
	}}})
}

// Before the buckets exist there is nothing to see and nothing to complain about.
func TestAttachesBeforeTheBuckets(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		rec := &recorder{}
		c := Attach(rec, env.Connect("checker").Conn(), "ns")
		_, ok := c.LastCommit()
		require.False(t, ok)
		require.Empty(t, c.Owners())
		f := newForge(t, env)
		v := f.begin()
		d, err := c.WaitVersion(t.Context(), v)
		require.NoError(t, err)
		require.Equal(t, v, d.Version)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Wait(ctx, func(d Commit) bool { return d.Version > v })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Millisecond)
			c.Detach()
		}()
		_, err = c.Wait(t.Context(), func(d Commit) bool { return d.Version > v })
		require.ErrorContains(t, err, "detached")
		require.Len(t, c.Entries(), 4)
		require.Empty(t, rec.errors)
	})
}

func TestIgnoring(t *testing.T) {
	accepted(t, func(f *forge) {
		v := f.begin()
		f.toB(v)
		f.c.AllowOperator()
		f.write(keyHeartbeat+"a", f.beats[a1], false)
	}, Ignoring(FromMissing))
}

// Least is what an even spread costs at least.
func TestLeast(t *testing.T) {
	accepted(t, func(f *forge) {
		v := f.begin()
		f.beat(c1)
		next := v + 1
		p2 := owned{id: "p2", epoch: next, from: []Item{{a1, next}}}
		f.commit(nil, grant{Holder: a1, entries: own(v, "p1")}, grant{Holder: b1, entries: own(v, "p3", "p4")}, grant{Holder: c1, entries: []owned{p2}})
		d, _ := f.c.LastCommit()
		require.Equal(f, []int{1, 1}, []int{d.Moved, d.Least})
		f.commit(nil, grant{Holder: a1, entries: own(v, "p1")}, grant{Holder: b1, entries: own(v, "p3", "p4")}, grant{Holder: c1, entries: []owned{p2}})
		d, _ = f.c.LastCommit()
		require.Equal(f, []int{0, 0}, []int{d.Moved, d.Least})
	})
}
