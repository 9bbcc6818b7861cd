package checker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// part is one partition under a commit. owner is zero for a parked one.
type part struct {
	owner   Holder
	owned   bool
	retired bool
	epoch   int64
	label   string
	weight  int64
	from    []Item
}

// view is a whole commit, decoded. It is never changed once made.
type view struct {
	version int64
	refs    []ref // sorted by worker
	slots   map[string]part
	parked  int // not retired
	retired int
}

// content is a decoded payload or parked list.
type content struct {
	parts  []part // without owner
	ids    []string
	lists  [][]Item
	digest string
}

// read fetches and verifies everything that the commit refers to. It returns nil where that is incomplete, and has said why.
func (m *model) read(e event, c *commit) *view {
	bad := func(rule Rule, format string, args ...any) { m.violate(rule, e, c.Version, format, args...) }
	refs, ok := m.readIndex(e, c)
	if !ok {
		return nil
	}
	v := &view{version: c.Version, refs: refs, slots: make(map[string]part, c.Partitions)}
	used := make(map[string]*content, len(refs)+1)
	get := func(hash, what string, parked bool) *content {
		d := m.blobs[hash]
		if d == nil {
			if d = m.readContent(e, c.Version, hash, what, parked); d == nil {
				ok = false
				return nil
			}
		}
		used[hash] = d
		for _, l := range d.lists {
			if why := fromFault(l, c.Version); why != "" {
				bad(FromForm, "%s: %s: %v", what, why, l)
			}
		}
		return d
	}
	add := func(id string, p part) {
		if q, twice := v.slots[id]; twice {
			bad(Coverage, "%s is listed twice: for %v and for %v", id, q.owner, p.owner)
		}
		v.slots[id] = p
	}
	for _, r := range refs {
		d := get(r.Payload, "payload of "+r.Worker, false)
		if d == nil {
			continue
		}
		if d.digest != r.SetDigest {
			bad(SetDigest, "the reference of %s says %s, its payload has %s", r.Worker, r.SetDigest, d.digest)
		}
		for i, p := range d.parts {
			p.owner, p.owned = r.holder(), true
			if p.epoch < 1 || p.epoch > c.Version {
				bad(EpochForm, "%s has epoch %d for %s", r.Worker, p.epoch, d.ids[i])
			}
			add(d.ids[i], p)
		}
	}
	if c.Parked != "" {
		if d := get(c.Parked, "parked list", true); d != nil {
			m.addParked(e, v, d, add)
		}
	}
	m.blobs = used
	if !ok {
		return nil
	}
	if n := len(v.slots) - v.retired; n != c.Partitions {
		bad(Counts, "it says %d partitions and has %d", c.Partitions, n)
	}
	m.judgeCoverage(e, v)
	return v
}

func (m *model) addParked(e event, v *view, d *content, add func(string, part)) {
	for i, p := range d.parts {
		if p.epoch != 0 {
			m.violate(EpochForm, e, v.version, "%s is parked with epoch %d", d.ids[i], p.epoch)
		}
		if p.retired {
			v.retired++
		} else {
			v.parked++
		}
		add(d.ids[i], p)
	}
}

// readIndex returns the worker references in their order.
func (m *model) readIndex(e event, c *commit) ([]ref, bool) {
	bad := func(format string, args ...any) { m.violate(IndexForm, e, c.Version, format, args...) }
	refs := c.Refs
	if len(c.Refs) > maxInline || len(c.Refs) > 0 && len(c.Shards) > 0 {
		bad("%d references inline, %d shards", len(c.Refs), len(c.Shards))
	}
	for _, s := range c.Shards {
		raw, err := m.blob(e, s.Hash)
		var b shardBlob
		if err == nil {
			err = decodeExact(raw, &b)
		}
		if err != nil {
			m.blobFault(e, c.Version, "shard of "+s.First, err)
			return nil, false
		}
		if b.Schema != 1 || len(b.Refs) == 0 || len(b.Refs) > maxInline || b.Refs[0].Worker != s.First {
			bad("the shard of %q has schema %d and %d references, or begins elsewhere", s.First, b.Schema, len(b.Refs))
		}
		refs = append(refs, b.Refs...)
	}
	for i, r := range refs {
		if i > 0 && refs[i-1].Worker >= r.Worker {
			bad("%s comes after %s", r.Worker, refs[i-1].Worker)
		}
	}
	if len(refs) != c.Workers {
		m.violate(Counts, e, c.Version, "it says %d workers and has %d", c.Workers, len(refs))
	}
	if got := batchDigest(refs, c.Parked); got != c.BatchDigest {
		bad("its batch digest is %s, the references have %s", c.BatchDigest, got)
	}
	return refs, true
}

// blob fetches and unpacks a content-addressed value.
func (m *model) blob(e event, hash string) ([]byte, error) {
	root, err := m.fetch(keyPayload+hash, e.at)
	if err != nil {
		return nil, err
	}
	return unpack(root.data, hash, func(h string) ([]byte, error) {
		c, err := m.fetch(keyChunk+h, e.at)
		return c.data, err
	})
}

func (m *model) blobFault(e event, version int64, what string, err error) {
	switch {
	case errors.Is(err, errForm):
		m.violate(BlobForm, e, version, "%s: %v", what, err)
	case errors.Is(err, errNotFound):
		m.violate(BlobMissing, e, version, "%s: %v", what, err)
	default:
		m.c.skip(fmt.Sprintf("version %d: %s: %v", version, what, err))
	}
}

func (m *model) readContent(e event, version int64, hash, what string, parked bool) *content {
	raw, err := m.blob(e, hash)
	var d *content
	if err == nil {
		d, err = decodeContent(raw, parked)
	}
	if err != nil {
		m.blobFault(e, version, what, err)
		return nil
	}
	return d
}

func decodeContent(raw []byte, parked bool) (*content, error) {
	var b payloadBlob
	if err := decodeExact(raw, &b); err != nil {
		return nil, err
	}
	if b.Schema != 1 {
		return nil, formf("schema %d", b.Schema)
	}
	d := &content{lists: b.FromLists}
	next := 0 // the table lists each different list once, in the order of its first use
	epochs := make([]int64, 0, len(b.Entries))
	for i, en := range b.Entries {
		id := partitionID(en.Keys)
		if len(en.Keys) == 0 || i > 0 && d.ids[i-1] >= id {
			return nil, formf("entry %d, %q, is out of order", i, id)
		}
		p := part{epoch: en.Epoch, label: en.Label, weight: en.Weight, retired: en.Retired}
		if en.From != nil {
			n := *en.From
			if n < 0 || n >= len(b.FromLists) || n > next {
				return nil, formf("entry %q refers to list %d of %d, %d are used before", id, n, len(b.FromLists), next)
			}
			next = max(next, n+1)
			p.from = b.FromLists[n]
		}
		if !parked && (en.Reason != "" || en.Retired) {
			return nil, formf("entry %q of a payload is parked or retired", id)
		}
		d.ids, d.parts, epochs = append(d.ids, id), append(d.parts, p), append(epochs, en.Epoch)
	}
	if next != len(b.FromLists) {
		return nil, formf("%d of %d lists are used", next, len(b.FromLists))
	}
	for i, l := range b.FromLists {
		if len(l) == 0 || slices.ContainsFunc(b.FromLists[:i], func(o []Item) bool { return slices.Equal(o, l) }) {
			return nil, formf("list %d is empty or was there before", i)
		}
	}
	d.digest = setDigest(d.ids, epochs)
	return d, nil
}

func fromFault(items []Item, version int64) string {
	for i, it := range items {
		if it.Version < 1 || it.Version > version {
			return fmt.Sprintf("an item has version %d", it.Version)
		}
		if i > 0 && (items[i-1].Worker > it.Worker || items[i-1].Worker == it.Worker && items[i-1].Incarnation >= it.Incarnation) {
			return "out of order, or an incarnation twice"
		}
	}
	return ""
}

// judgeCoverage compares what the commit covers with the sources declared.
func (m *model) judgeCoverage(e event, v *view) {
	allowed := m.c.allowedSources(e.at)
	if len(allowed) == 0 {
		return
	}
	covered := len(v.slots) - v.retired
	var why []string
	for _, s := range allowed {
		missing, example := 0, ""
		for id := range s.ids {
			if p, ok := v.slots[id]; !ok || p.retired {
				missing, example = missing+1, id
			}
		}
		if missing == 0 && covered == len(s.ids) {
			return
		}
		why = append(why, fmt.Sprintf("%d of %d are missing (%s), %d are foreign", missing, len(s.ids), example, covered-(len(s.ids)-missing)))
	}
	m.violate(Coverage, e, v.version, "%s", strings.Join(why, "; or "))
}
