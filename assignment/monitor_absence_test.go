package assignment

import (
	"fmt"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// absent is a ledger with what is in its bucket, for the tests of rule (c).
type absent struct {
	*ledger
	bucket map[string]kv.Entry
	rev    uint64
}

func newAbsent() *absent {
	a := &absent{ledger: newLedger(time.Unix(1, 0)), bucket: map[string]kv.Entry{}}
	a.silence, a.absences.ttl = testTTL, testTTL
	a.put("o", beat("o", "o1", 10)) // somebody who has applied the commit in question
	return a
}

func (a *absent) store(worker string, e kv.Entry) kv.Entry {
	a.rev++
	e.Key, e.Revision = heartbeatPrefix+worker, a.rev
	a.bucket[e.Key] = e
	return e
}

func (a *absent) put(worker string, value []byte) { a.store(worker, kv.Entry{Value: value}) }

// hears takes in what is stored of the worker, as the feed brings it.
func (a *absent) hears(worker string) { a.observe(a.bucket[heartbeatPrefix+worker]) }

// purge removes the key, with whatever marker it had.
func (a *absent) purge(worker string) { delete(a.bucket, heartbeatPrefix+worker) }

func (a *absent) list() {
	a.put("o", a.bucket[heartbeatPrefix+"o"].Value)
	a.merge(listing{mark: a.mark(), entries: a.bucket, created: a.created})
}

// pass lets time pass, with a listing at every half TTL.
func (a *absent) pass(d time.Duration) {
	for ; d > 0; d -= testTTL / 2 {
		time.Sleep(testTTL / 2)
		a.list()
	}
}

func (a *absent) proved() bool {
	return a.released(types.Holder{Worker: "w", Incarnation: "i"}, 10, "p")
}

// Rule (c): a key that is gone without an announcement proves something one HeartbeatTTL after that was seen, and not before.
func TestAbsenceProvesAfterATTL(t *testing.T) {
	alive := func(a *absent) {
		a.put("w", beat("w", "i", 3))
		a.list()
	}
	cases := map[string]struct {
		before, then func(a *absent)
		never        bool
	}{
		"purged":                 {before: alive, then: func(a *absent) { a.purge("w") }},
		"deleted":                {before: alive, then: func(a *absent) { a.store("w", kv.Entry{Op: kv.Delete}) }},
		"deleted, and heard":     {before: alive, then: func(a *absent) { a.store("w", kv.Entry{Op: kv.Delete}); a.hears("w") }},
		"claimed over nothing":   {before: alive, then: func(a *absent) { a.put("w", beat("w", "j", 0)) }},
		"never seen":             {},
		"never seen, other life": {then: func(a *absent) { a.put("w", beat("w", "j", 0)) }},
		"alive":                  {before: alive, never: true},
		"not readable":           {before: alive, then: func(a *absent) { a.put("w", []byte("{")) }, never: true},
		"a plain worker's now": {before: alive, never: true, then: func(a *absent) {
			a.put("w", beat("w", "", 0, func(h *types.Heartbeat) { h.Capabilities = 0 }))
		}},
		"no listing shows the commit": {never: true, before: func(a *absent) { a.put("o", beat("o", "o1", 9)) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
				a := newAbsent()
				for _, do := range []func(*absent){c.before, func(a *absent) { a.pass(5 * testTTL) }, c.then} {
					if do != nil {
						do(a)
					}
				}
				if c.before == nil && c.then == nil { // it was never there: long proved
					require.True(t, a.proved())
					return
				}
				a.list()
				a.pass(testTTL / 2)
				require.False(t, a.proved(), "half a TTL")
				a.pass(2 * testTTL)
				require.Equal(t, !c.never, a.proved(), "two TTLs and a half")
			})
		})
	}
}

// The time counts from a listing that is later than the commit in question: one from before it may be older than the holder.
func TestAbsenceCountsFromAFreshListing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		a := newAbsent()
		a.put("o", beat("o", "o1", 9))
		a.pass(5 * testTTL) // the holder came and went between two listings
		a.put("o", beat("o", "o1", 10))
		a.list()
		a.pass(testTTL / 2)
		require.False(t, a.proved())
		a.pass(testTTL)
		require.True(t, a.proved())
	})
}

// In another bucket everything is gone since it was seen to be another one.
func TestAbsenceInAnotherBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		a := newAbsent()
		a.pass(5 * testTTL)
		a.put("w", beat("w", "i", 3))
		a.list()
		a.rev, a.bucket = 0, map[string]kv.Entry{}
		a.put("o", beat("o", "o1", 10))
		a.merge(listing{mark: a.mark(), entries: a.bucket, created: time.Unix(2, 0)})
		a.pass(testTTL / 2)
		require.False(t, a.proved())
		a.pass(testTTL)
		require.True(t, a.proved())
	})
}

// What is remembered of absences is bounded by what vanishes within a little more than a TTL.
func TestAbsencesAreBounded(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, _ *natstest.Env) {
		a := newAbsent()
		for i := range 200 {
			for j := range 10 {
				a.put(fmt.Sprintf("w%d-%d", i, j), beat(fmt.Sprintf("w%d-%d", i, j), "1", 0))
			}
			a.list()
			for j := range 10 {
				a.purge(fmt.Sprintf("w%d-%d", i, j))
			}
			time.Sleep(testTTL / 20)
			a.list()
		}
		require.LessOrEqual(t, len(a.absences.gone), 300)
		require.LessOrEqual(t, len(a.absences.past), 10)
	})
}
