package checker

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

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
