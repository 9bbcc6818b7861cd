package checker

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// grant is what a commit gives to one holder.
type grant struct {
	Holder
	grace   int64
	entries []owned
}

type owned struct {
	id     string
	epoch  int64
	label  string
	from   []Item
	retire bool
}

func own(epoch int64, ids ...string) []owned {
	var all []owned
	for _, id := range ids {
		all = append(all, owned{id: id, epoch: epoch})
	}
	return all
}

// draft is a commit before it is stored. Cases change it.
type draft struct {
	commit  commit
	renewal leaderValue
	grants  []grant
	parked  []owned

	blob        func(what string, b *payloadBlob)     // changes a blob before it is encoded
	raw         func(what string, raw []byte) []byte  // changes its bytes; the address follows
	stored      func(what string, root []byte) []byte // changes what lies under the address; nil: nothing
	refs        func(refs []ref) []ref                // changes the references
	shardSize   int                                   // 0: inline
	batchDigest string                                // in place of the right one
	encode      func(data []byte) []byte              // changes the commit's bytes
	log         func(data []byte) []byte              // changes the log's
	alone       bool                                  // the renewal is not in the batch
	noRenewal   bool                                  // there is no renewal
	unguarded   bool                                  // without an expected revision
}

// draft prepares the next version: a right one, if the grants are.
func (f *forge) draft(parked []owned, grants ...grant) *draft {
	f.version++
	return f.draftAt(f.version, parked, grants...)
}

func (f *forge) draftAt(version int64, parked []owned, grants ...grant) *draft {
	d := &draft{grants: grants, parked: parked}
	prev := f.last(keyCommit)
	if e := f.commits[f.version-1]; e.Version == 0 && len(f.commits) == 0 {
		prev = 0
	}
	n := 0
	for _, g := range grants {
		n += len(g.entries)
	}
	for _, p := range parked {
		if !p.retire {
			n++
		}
	}
	d.commit = commit{Schema: 1, Version: version, LeaderRevision: f.term, TermHolder: f.leader.holder(), Workers: len(grants), Partitions: n,
		Lifecycle: "manual", PreviousRevision: prev, PublishedAt: time.Now().UTC(), Nonce: f.next()}
	d.renewal = f.leader
	d.renewal.Term, d.renewal.CommitVersion, d.renewal.Nonce = f.term, version, f.next()
	return d
}

func encodeBlob(entries []owned, parked bool) *payloadBlob {
	b := &payloadBlob{Schema: 1, Entries: []entry{}}
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b owned) int { return cmp.Compare(a.id, b.id) })
	for _, o := range entries {
		e := entry{Keys: []string{o.id}, Epoch: o.epoch, Label: o.label, Retired: o.retire}
		if parked {
			e.Reason = "forged"
		}
		if len(o.from) > 0 {
			n := slices.IndexFunc(b.FromLists, func(l []Item) bool { return slices.Equal(l, o.from) })
			if n < 0 {
				n = len(b.FromLists)
				b.FromLists = append(b.FromLists, o.from)
			}
			e.From = &n
		}
		b.Entries = append(b.Entries, e)
	}
	return b
}

// store stores a content-addressed value and returns its address.
func (f *forge) store(d *draft, what string, v any) string {
	raw, err := encode(v)
	require.NoError(f, err)
	if d.raw != nil {
		raw = d.raw(what, raw)
	}
	hash := hashOf(raw)
	root := packed(f, raw)
	if d.stored != nil {
		root = d.stored(what, root)
	}
	if root != nil {
		f.write(keyPayload+hash, root, false)
	}
	return hash
}

func packed(t require.TestingT, raw []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(raw)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func (f *forge) list(d *draft, what string, entries []owned, parked bool) (hash, digest string) {
	b := encodeBlob(entries, parked)
	if d.blob != nil {
		d.blob(what, b)
	}
	var ids []string
	var epochs []int64
	for _, e := range b.Entries {
		ids, epochs = append(ids, partitionID(e.Keys)), append(epochs, e.Epoch)
	}
	return f.store(d, what, b), setDigest(ids, epochs)
}

// publish stores what the commit refers to and then the commit.
func (f *forge) publish(d *draft) {
	c := &d.commit
	var refs []ref
	for _, g := range d.grants {
		hash, digest := f.list(d, g.Worker, g.entries, false)
		refs = append(refs, ref{g.Worker, g.Incarnation, hash, digest, g.grace})
	}
	if d.refs != nil {
		refs = d.refs(refs)
	}
	if len(d.parked) > 0 {
		c.Parked, _ = f.list(d, "parked", d.parked, true)
	}
	if c.BatchDigest = batchDigest(refs, c.Parked); d.batchDigest != "" {
		c.BatchDigest = d.batchDigest
	}
	if d.shardSize == 0 {
		c.Refs = refs
	} else {
		for part := range slices.Chunk(refs, d.shardSize) {
			c.Shards = append(c.Shards, shard{part[0].Worker, f.store(d, "shard", shardBlob{1, part})})
		}
	}
	f.digests[c.Version] = map[Holder]string{}
	for _, r := range refs {
		f.digests[c.Version][r.holder()] = r.SetDigest
	}
	f.commits[c.Version] = *c
	data, err := encode(c)
	require.NoError(f, err)
	if d.encode != nil {
		data = d.encode(data)
	}
	log := data
	if d.log != nil {
		log = d.log(slices.Clone(data))
	}
	f.leader = d.renewal
	f.batch(d, data, log)
	if !f.quiet {
		f.c.Sync()
	}
}

func (f *forge) batch(d *draft, data, log []byte) {
	renewal, err := json.Marshal(d.renewal)
	require.NoError(f, err)
	logKey := keyLog + strconv.FormatInt(d.commit.Version, 10)
	pub, err := jetstreamext.NewBatchPublisher(f.js)
	require.NoError(f, err)
	switch {
	case d.noRenewal:
	case d.alone:
		f.write(keyLeader, renewal, true, jetstream.WithMsgTTL(forgeLease))
	default:
		require.NoError(f, pub.Add(subject(keyLeader), renewal, jetstreamext.WithBatchExpectLastSequencePerSubject(f.last(keyLeader)),
			jetstreamext.WithBatchMsgTTL(forgeLease)))
	}
	var guard []jetstreamext.BatchMsgOpt
	if !d.unguarded {
		guard = append(guard, jetstreamext.WithBatchExpectLastSequencePerSubject(f.last(keyCommit)))
	}
	if log == nil {
		_, err = pub.Commit(f.Context(), subject(keyCommit), data, guard...)
		require.NoError(f, err)
		return
	}
	require.NoError(f, pub.Add(subject(keyCommit), data, guard...))
	_, err = pub.Commit(f.Context(), subject(logKey), log)
	require.NoError(f, err)
}

// commit publishes a commit that is right, as far as the grants are.
func (f *forge) commit(parked []owned, grants ...grant) int64 {
	d := f.draft(parked, grants...)
	f.publish(d)
	return d.commit.Version
}

// chunked publishes a commit in which b has so many partitions that its payload is stored in chunks.
func chunked(f *forge, v int64, missing, damaged bool) {
	r := rand.New(rand.NewPCG(1, 2))
	g := f.stay(v)
	ids := slices.Clone(source)
	for range 20_000 {
		id := fmt.Sprintf("q-%016x%016x%016x", r.Uint64(), r.Uint64(), r.Uint64())
		ids = append(ids, id)
		g[1].entries = append(g[1].entries, owned{id: id, epoch: f.version + 1})
	}
	f.c.ExpectSource(ids, 0)
	d := f.draft(nil, g...)
	d.raw = func(what string, raw []byte) []byte {
		d.stored = func(what string, root []byte) []byte {
			if len(root) <= maxPiece {
				return root
			}
			m := manifest{Schema: 1, SHA256: hashOf(raw), Size: int64(len(root))}
			for piece := range slices.Chunk(root, maxPiece) {
				h := hashOf(piece)
				m.Chunks = append(m.Chunks, h)
				if damaged {
					piece = append([]byte{1}, piece[1:]...)
				}
				if !missing {
					f.write(keyChunk+h, piece, false)
				}
			}
			require.Greater(f, len(m.Chunks), 1)
			root, err := json.Marshal(m)
			require.NoError(f, err)
			return root
		}
		return raw
	}
	f.publish(d)
}
