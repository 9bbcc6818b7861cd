package checker

import (
	"bytes"
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
