package checker

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// forgery goes on after forge.begin, whose version is v, and breaks exactly the rules named.
type forgery struct {
	name string
	want []Rule
	do   func(f *forge, v int64)
}

func runForgeries(t *testing.T, cases []forgery) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(f *forge) {
				c.do(f, f.begin())
				require.Equal(f, slices.Sorted(slices.Values(c.want)), f.rules(), strings.Join(f.rec.errors, "\n"))
				require.NotEmpty(f, f.rec.errors, "the test was not failed")
			})
		})
	}
}

// forged is a case that changes the draft of a commit in which nothing moves.
func forged(change func(f *forge, d *draft, v int64)) func(f *forge, v int64) {
	return func(f *forge, v int64) {
		d := f.draft(nil, f.stay(v)...)
		change(f, d, v)
		f.publish(d)
	}
}

// forgedMove is a case that changes the draft of a commit in which p2 goes from a to b, so that b's payload is new.
func forgedMove(change func(d *draft)) func(f *forge, v int64) {
	return func(f *forge, v int64) {
		d := f.draft(nil, f.moved(v)...)
		change(d)
		f.publish(d)
	}
}

// succeed makes b the leader in good order; the next draft is the first of its term.
func (f *forge) succeed() {
	f.remove(keyLeader)
	f.acquire(b1)
	f.version += 65_536
}

func TestForgedSequences(t *testing.T) { runForgeries(t, forgedSequences()) }

func forgedSequences() []forgery {
	return []forgery{
		{"commit is no JSON", []Rule{CommitForm, LeaderVersion}, forged(func(_ *forge, d *draft, _ int64) {
			d.encode = func([]byte) []byte { return []byte("{") }
		})},
		{"commit without a reason", []Rule{CommitForm}, forged(func(_ *forge, d *draft, _ int64) { d.commit.Lifecycle = "" })},
		{"commit of a later schema", []Rule{CommitForm}, forged(func(_ *forge, d *draft, _ int64) { d.commit.Schema = 2 })},
		{"commit over 8 KiB", []Rule{CommitSize}, forged(func(_ *forge, d *draft, _ int64) { d.commit.Lifecycle = strings.Repeat("x", 8<<10) })},
		{"version goes back", []Rule{CommitOrder}, forged(func(_ *forge, d *draft, v int64) { d.commit.Version, d.renewal.CommitVersion = v-1, v })},
		{"version repeats", []Rule{CommitOrder}, forged(func(_ *forge, d *draft, v int64) { d.commit.Version, d.renewal.CommitVersion = v, v })},
		{"an old commit is written again", []Rule{CommitOrder}, func(f *forge, v int64) {
			f.commit(nil, f.stay(v)...)
			old, err := encode(f.commits[v])
			require.NoError(f, err)
			f.write(keyCommit, old, true)
		}},
		{"previous revision is older", []Rule{CommitPrevious}, forged(func(_ *forge, d *draft, _ int64) { d.commit.PreviousRevision-- })},
		{"previous revision is missing", []Rule{CommitPrevious}, forged(func(_ *forge, d *draft, _ int64) { d.commit.PreviousRevision = 0 })},
		{"nonce used twice", []Rule{CommitNonce}, forged(func(f *forge, d *draft, v int64) { d.commit.Nonce = f.commits[v].Nonce })},
		{"no log", []Rule{CommitLog}, forged(func(_ *forge, d *draft, _ int64) { d.log = func([]byte) []byte { return nil } })},
		{"another log", []Rule{CommitLog}, forged(func(_ *forge, d *draft, _ int64) {
			d.log = func(b []byte) []byte { return bytes.Replace(b, []byte("manual"), []byte("Manual"), 1) }
		})},
		{"log not in the batch", []Rule{CommitLog}, forged(func(f *forge, d *draft, _ int64) {
			d.log = func(b []byte) []byte { f.write(keyLog+strconv.FormatInt(d.commit.Version, 10), b, false); return nil }
		})},
		{"commit key deleted", []Rule{CommitLost}, func(f *forge, _ int64) { f.remove(keyCommit) }},
		{"control bucket recreated", []Rule{CommitLost}, func(f *forge, _ int64) {
			require.NoError(f, f.js.DeleteStream(f.Context(), "KV_ns-control"))
			f.createStream("ns-control", 0)
			f.acquire(a1)
		}},
		{"lead renewed outside of the batch", []Rule{TermRenewal}, forged(func(_ *forge, d *draft, _ int64) { d.alone = true })},
		{"lead not renewed at all", []Rule{TermRenewal}, forged(func(_ *forge, d *draft, _ int64) { d.noRenewal = true })},
		{"renewal names another version", []Rule{TermVersion}, forged(func(_ *forge, d *draft, v int64) { d.renewal.CommitVersion = v })},
		{"commit names another holder", []Rule{TermHolder}, forged(func(_ *forge, d *draft, _ int64) { d.commit.TermHolder = b1 })},
		{"commit under a term to come", []Rule{TermRevision}, func(f *forge, v int64) {
			f.version += 65_536
			forged(func(_ *forge, d *draft, _ int64) { d.commit.LeaderRevision++ })(f, v)
		}},
		{"term is the revision of the last renewal", []Rule{TermRevision, TermFirstVersion}, forged(func(f *forge, d *draft, _ int64) {
			f.renew()
			d.commit.LeaderRevision = f.last(keyLeader)
		})},
		{"former leader's commit under its own term", []Rule{TermOrder, TermRevision, TermHolder, TermFirstVersion}, func(f *forge, v int64) {
			old := f.term
			f.succeed()
			f.commit(nil, f.stay(v)...)
			d := f.draft(nil, f.stay(v)...)
			d.commit.LeaderRevision, d.commit.TermHolder = old, a1
			f.publish(d)
		}},
		{"commit under an older term", []Rule{TermOrder, TermRevision}, func(f *forge, v int64) {
			old := f.term
			f.succeed()
			f.commit(nil, f.stay(v)...)
			f.version += 65_536
			d := f.draft(nil, f.stay(v)...)
			d.commit.LeaderRevision = old
			f.publish(d)
		}},
		{"commit of a term that was superseded", []Rule{TermRevision, TermHolder}, func(f *forge, v int64) {
			old := f.term
			f.succeed()
			d := f.draft(nil, f.stay(v)...)
			d.commit.LeaderRevision, d.commit.TermHolder = old, a1
			f.publish(d)
		}},
		{"commit after the lead was released", []Rule{TermEnded}, func(f *forge, v int64) {
			d := f.draft(nil, f.stay(v)...)
			d.noRenewal = true
			f.remove(keyLeader)
			f.publish(d)
		}},
		{"commit after the lead expired", []Rule{TermEnded}, func(f *forge, v int64) {
			for range 6 {
				time.Sleep(2 * time.Second)
				f.beat(a1)
				f.beat(b1)
			}
			d := f.draft(nil, f.stay(v)...)
			d.noRenewal = true
			f.publish(d)
		}},
		{"expired lead revived by its batch", []Rule{LeaderTerm, TermRevision}, func(f *forge, v int64) {
			for range 6 {
				time.Sleep(2 * time.Second)
				f.beat(a1)
				f.beat(b1)
			}
			f.commit(nil, f.stay(v)...)
		}},
		{"first version of a term too low", []Rule{TermFirstVersion}, func(f *forge, v int64) {
			f.remove(keyLeader)
			f.acquire(b1)
			f.version += 65_534
			f.commit(nil, f.stay(v)...)
		}},
		{"unguarded commit", []Rule{Unguarded}, forged(func(_ *forge, d *draft, _ int64) { d.unguarded = true })},
		{"unguarded renewal", []Rule{Unguarded}, func(f *forge, _ int64) {
			f.leader.Term = f.term
			f.write(keyLeader, f.leader, false, jetstream.WithMsgTTL(forgeLease))
		}},
		{"unguarded heartbeat", []Rule{Unguarded}, func(f *forge, _ int64) { f.write(keyHeartbeat+"a", f.beats[a1], false) }},
		{"unguarded delete", []Rule{Unguarded}, func(f *forge, _ int64) {
			f.send(&nats.Msg{Subject: subject(keyLeader), Header: nats.Header{"KV-Operation": {"DEL"}}}, keyLeader, false)
		}},
	}
}

func TestForgedLeaders(t *testing.T) { runForgeries(t, forgedLeaders()) }

func forgedLeaders() []forgery {
	return []forgery{
		{"no JSON", []Rule{LeaderForm}, func(f *forge, _ int64) { f.write(keyLeader, []byte("me"), true, jetstream.WithMsgTTL(forgeLease)) }},
		{"no incarnation", []Rule{LeaderForm}, func(f *forge, _ int64) { f.renew(func(v *leaderValue) { v.Incarnation = "" }) }},
		{"lives for ever", []Rule{LeaderForm}, func(f *forge, _ int64) {
			f.leader.Term = f.term
			f.write(keyLeader, f.leader, true)
		}},
		{"seized", []Rule{LeaderSeized}, func(f *forge, _ int64) { f.acquire(b1) }},
		{"another term in a renewal", []Rule{LeaderTerm}, func(f *forge, _ int64) { f.renew(func(v *leaderValue) { v.Term++ }) }},
		{"no term in a renewal", []Rule{LeaderTerm}, func(f *forge, _ int64) { f.renew(func(v *leaderValue) { v.Term = 0 }) }},
		{"an acquisition with a term", []Rule{LeaderTerm}, func(f *forge, _ int64) {
			f.remove(keyLeader)
			f.acquire(b1, func(v *leaderValue) { v.Term = 1 })
		}},
		{"version goes back", []Rule{LeaderVersion}, func(f *forge, v int64) { f.renew(func(l *leaderValue) { l.CommitVersion = v - 1 }) }},
		{"version ahead of the commits", []Rule{LeaderVersion}, func(f *forge, v int64) { f.renew(func(l *leaderValue) { l.CommitVersion = v + 1 }) }},
	}
}

func TestForgedContent(t *testing.T) { runForgeries(t, forgedContent()) }

func forgedContent() []forgery {
	swap := func(refs []ref) []ref { slices.Reverse(refs); return refs }
	many := func(change func(d *draft)) func(f *forge, v int64) {
		return func(f *forge, v int64) {
			grants := f.stay(v)
			for i := range maxInline - 1 {
				h := Holder{fmt.Sprintf("w-%02d", i), "x"}
				f.beat(h)
				grants = append(grants, grant{Holder: h})
			}
			d := f.draft(nil, grants...)
			change(d)
			f.publish(d)
		}
	}
	blobOfB := func(change func(b *payloadBlob)) func(f *forge, v int64) {
		return forgedMove(func(d *draft) {
			d.blob = func(what string, b *payloadBlob) {
				if what == "b" {
					change(b)
				}
			}
		})
	}
	storedOfB := func(change func(root []byte) []byte) func(f *forge, v int64) {
		return forgedMove(func(d *draft) {
			d.stored = func(what string, root []byte) []byte {
				if what == "b" {
					return change(root)
				}
				return root
			}
		})
	}
	return []forgery{
		{"references out of order", []Rule{IndexForm}, forged(func(_ *forge, d *draft, _ int64) { d.refs = swap })},
		{"worker twice", []Rule{IndexForm, Counts, Coverage}, forged(func(_ *forge, d *draft, _ int64) {
			d.refs = func(refs []ref) []ref { return append(refs, refs[1]) }
		})},
		{"another batch digest", []Rule{IndexForm}, forged(func(_ *forge, d *draft, _ int64) { d.batchDigest = hashOf(nil)[:32] })},
		{"batch digest without the grace", []Rule{IndexForm}, forged(func(f *forge, d *draft, v int64) {
			d.batchDigest = batchDigest(f.commits[v].Refs, "")
			d.grants[1].grace = 1
		})},
		{"33 references inline", []Rule{IndexForm}, many(func(*draft) {})},
		{"33 references in a shard", []Rule{IndexForm}, many(func(d *draft) { d.shardSize = 33 })},
		{"shard that begins elsewhere", []Rule{IndexForm}, many(func(d *draft) {
			d.shardSize = 20
			d.encode = func(data []byte) []byte { return bytes.Replace(data, []byte(`"first":"w-`), []byte(`"first":"v-`), 1) }
		})},
		{"shard not canonical", []Rule{BlobForm}, many(func(d *draft) {
			d.shardSize = 20
			d.raw = func(what string, raw []byte) []byte {
				if what == "shard" {
					return append(raw, '\n')
				}
				return raw
			}
		})},
		{"payload not stored", []Rule{BlobMissing}, storedOfB(func([]byte) []byte { return nil })},
		{"parked list not stored", []Rule{BlobMissing}, func(f *forge, v int64) {
			d := f.draft([]owned{{id: "p4", from: []Item{{b1, v + 1}}}}, grant{Holder: a1, entries: own(v, "p1", "p2")}, grant{Holder: b1, entries: own(v, "p3")})
			d.stored = func(what string, root []byte) []byte {
				if what == "parked" {
					return nil
				}
				return root
			}
			f.publish(d)
		}},
		{"payload of another address", []Rule{BlobForm}, storedOfB(func([]byte) []byte { return packed(panicking{}, []byte("other")) })},
		{"payload not compressed", []Rule{BlobForm}, storedOfB(func([]byte) []byte { return []byte(`"x"`) })},
		{"payload cut short", []Rule{BlobForm}, storedOfB(func(root []byte) []byte { return root[:len(root)-9] })},
		{"chunk missing", []Rule{BlobMissing}, func(f *forge, v int64) { chunked(f, v, true, false) }},
		{"chunk of other content", []Rule{BlobForm}, func(f *forge, v int64) { chunked(f, v, false, true) }},
		{"white space in a payload", []Rule{BlobForm}, forgedMove(func(d *draft) {
			d.raw = func(_ string, raw []byte) []byte { return bytes.Replace(raw, []byte(":"), []byte(": "), 1) }
		})},
		{"unknown field in a payload", []Rule{BlobForm}, forgedMove(func(d *draft) {
			d.raw = func(_ string, raw []byte) []byte { return bytes.Replace(raw, []byte("{"), []byte(`{"x":1,`), 1) }
		})},
		{"payload of a later schema", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { b.Schema = 2 })},
		{"entries out of order", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { b.Entries[1], b.Entries[2] = b.Entries[2], b.Entries[1] })},
		{"entry without keys", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { b.Entries[0].Keys = []string{} })},
		{"retired entry in a payload", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { b.Entries[0].Retired = true })},
		{"from outside of the table", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { n := 1; b.Entries[0].From = &n })},
		{"list that nobody uses", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) { b.FromLists = append(b.FromLists, []Item{{c1, 1}}) })},
		{"list twice in the table", []Rule{BlobForm}, blobOfB(func(b *payloadBlob) {
			n := 1
			b.FromLists = append(b.FromLists, b.FromLists[0])
			b.Entries[2].From = &n
		})},
		{"another set digest", []Rule{SetDigest}, forged(func(_ *forge, d *draft, _ int64) {
			d.refs = func(refs []ref) []ref { refs[1].SetDigest = refs[0].SetDigest; return refs }
		})},
		{"partition missing", []Rule{Coverage, FromMissing}, func(f *forge, v int64) {
			f.commit(nil, grant{Holder: a1, entries: own(v, "p1", "p2")}, grant{Holder: b1, entries: own(v, "p3")})
		}},
		{"partition retired that is in the source", []Rule{Coverage}, func(f *forge, v int64) {
			f.commit([]owned{{id: "p4", from: []Item{{b1, v + 1}}, retire: true}}, grant{Holder: a1, entries: own(v, "p1", "p2")}, grant{Holder: b1, entries: own(v, "p3")})
		}},
		{"partition twice", []Rule{Coverage}, func(f *forge, v int64) {
			g := f.stay(v)
			g[0].entries = append(g[0].entries, owned{id: "p3", epoch: v + 1, from: []Item{{b1, v + 1}}})
			d := f.draft(nil, g...)
			d.commit.Partitions = 4
			f.publish(d)
		}},
		{"partition owned and parked", []Rule{Coverage, FromMissing}, func(f *forge, v int64) {
			d := f.draft([]owned{{id: "p3"}}, f.stay(v)...)
			d.commit.Partitions = 4
			f.publish(d)
		}},
		{"foreign partition", []Rule{Coverage}, func(f *forge, v int64) { f.commit([]owned{{id: "p5"}}, f.stay(v)...) }},
		{"source of yesterday", []Rule{Coverage}, func(f *forge, v int64) {
			f.c.ExpectSource(append([]string{"p5"}, source...), 3*time.Second)
			f.commit(nil, f.stay(v)...) // still allowed
			time.Sleep(3 * time.Second)
			f.commit(nil, f.stay(v)...)
		}},
		{"number of partitions", []Rule{Counts}, forged(func(_ *forge, d *draft, _ int64) { d.commit.Partitions++ })},
		{"number of workers", []Rule{Counts}, forged(func(_ *forge, d *draft, _ int64) { d.commit.Workers-- })},
		{"worker never heard of", []Rule{UnknownOwner}, func(f *forge, v int64) { f.commit(nil, append(f.stay(v), grant{Holder: c1})...) }},
		{"incarnation never heard of", []Rule{UnknownOwner}, func(f *forge, v int64) {
			g := f.stay(v)
			from := []Item{{a1, v + 1}}
			g[0] = grant{Holder: a2, entries: []owned{{id: "p1", epoch: v + 1, from: from}, {id: "p2", epoch: v + 1, from: from}}}
			f.commit(nil, g...)
		}},
		{"somebody else's incarnation", []Rule{UnknownOwner}, func(f *forge, v int64) {
			f.beat(c1)
			f.commit(nil, append(f.stay(v), grant{Holder: Holder{"c", "b1"}})...)
		}},
		{"heard of afterwards", []Rule{UnknownOwner}, func(f *forge, v int64) {
			f.commit(nil, append(f.stay(v), grant{Holder: c1})...)
			f.beat(c1)
		}},
		{"given to who has left", []Rule{GoneOwner}, func(f *forge, v int64) {
			f.beat(b1, state("left"))
			time.Sleep(3 * time.Second)
			f.commit(nil, f.moved(v)...)
		}},
		{"given to who drains", []Rule{GoneOwner}, func(f *forge, v int64) {
			f.beat(b1, state("draining"))
			time.Sleep(3 * time.Second)
			f.commit(nil, f.moved(v)...)
		}},
		{"given to the dead", []Rule{GoneOwner}, func(f *forge, v int64) {
			for range 4 {
				time.Sleep(2 * time.Second)
				f.beat(a1)
			}
			f.commit(nil, f.moved(v)...)
		}},
		{"given to who was replaced", []Rule{GoneOwner}, func(f *forge, v int64) {
			f.beat(b2, over("own"))
			time.Sleep(3 * time.Second)
			f.commit(nil, f.moved(v)...)
		}},
		{"label that the worker lacks", []Rule{Labels}, func(f *forge, v int64) {
			f.beat(b1, func(b *heartbeat) { b.Labels = []string{"ssd"} })
			g := f.moved(v)
			g[1].entries[2].label = "gpu"
			f.commit(nil, g...)
		}},
		{"more partitions than the worker takes", []Rule{Capacity}, func(f *forge, v int64) {
			f.beat(b1, func(b *heartbeat) { b.Capacity.Partitions = 2 })
			f.commit(nil, f.moved(v)...)
		}},
		{"more weight than the worker takes", []Rule{Capacity}, func(f *forge, v int64) {
			f.beat(b1, func(b *heartbeat) { b.Capacity.Weight = 299 })
			f.commit(nil, f.moved(v)...)
		}},
	}
}

// panicking is for what cannot fail.
type panicking struct{}

func (panicking) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicking) FailNow()                          { panic("failed") }

// TestEveryRuleHasAForgery keeps rules out that nothing trips.
func TestEveryRuleHasAForgery(t *testing.T) {
	tripped := map[string]bool{string(HeartbeatFalse): true} // TestForgedAcknowledgements
	for _, table := range [][]forgery{forgedSequences(), forgedLeaders(), forgedContent(), forgedSteps(), forgedHeartbeats()} {
		for _, c := range table {
			for _, r := range c.want {
				tripped[string(r)] = true
			}
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "rules.go", nil, 0)
	require.NoError(t, err)
	rules := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			rules++
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.True(t, tripped[name], "no forgery trips %s", name)
		}
		return true
	})
	require.Greater(t, rules, 40)
}
