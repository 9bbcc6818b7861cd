package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// digestDigits is the length of a digest in hexadecimal: 128 bits. Digests guard against mistakes, the content address does
// against everything else, and the shorter digest keeps the index small.
const digestDigits = 32

// SetDigest covers which partitions the entries name and under which epochs, whatever their order and encoding: the first 16
// bytes of the sha256 over each entry's ID, preceded by its length, and epoch, sorted by ID, in hexadecimal.
func SetDigest(entries []types.AssignmentEntry) string {
	return setDigest(sortedByID(entries, func(e *types.AssignmentEntry) *types.Partition { return &e.Partition }))
}

func setDigest(entries []keyed[types.AssignmentEntry]) string {
	d := newDigest()
	for _, e := range entries {
		d.text(e.id)
		d.number(e.value.Epoch)
	}
	return d.sum()
}

// BatchDigest covers every reference of a commit, in any order, and the hash of its parked list: what makes two commits give
// the same to the same workers.
func BatchDigest(refs []types.AssignmentPayloadRef, parkedHash string) string {
	byWorker := func(a, b types.AssignmentPayloadRef) int { return strings.Compare(a.WorkerID, b.WorkerID) }
	if !slices.IsSortedFunc(refs, byWorker) {
		refs = slices.Clone(refs)
		slices.SortStableFunc(refs, byWorker)
	}
	d := newDigest()
	for i := range refs {
		r := &refs[i]
		d.text(r.WorkerID)
		d.text(r.Incarnation)
		d.text(r.PayloadHash)
		d.text(r.SetDigest)
		d.number(r.GraceUntil)
	}
	d.text(parkedHash)
	return d.sum()
}

// digest collects fields unambiguously: each text is preceded by its length, each number has eight bytes.
type digest struct {
	h   hash.Hash
	buf []byte
}

func newDigest() *digest { return &digest{h: sha256.New(), buf: make([]byte, 0, 4096)} }

func (d *digest) text(s string) {
	d.buf = binary.AppendUvarint(d.buf, uint64(len(s)))
	d.buf = append(d.buf, s...)
	d.flush(2048)
}

func (d *digest) number(n int64) { d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(n)) }

func (d *digest) flush(above int) {
	if len(d.buf) > above {
		d.h.Write(d.buf)
		d.buf = d.buf[:0]
	}
}

func (d *digest) sum() string {
	d.flush(0)
	return hex.EncodeToString(d.h.Sum(nil)[:digestDigits/2])
}

// keyed is a value with its partition ID, which costs something to compute.
type keyed[T any] struct {
	id    string
	value *T
}

// sortedByID returns the values with their IDs, sorted by ID. Where they are sorted already, which is the rule, it costs one
// pass.
func sortedByID[T any](values []T, partition func(*T) *types.Partition) []keyed[T] {
	out := make([]keyed[T], len(values))
	sorted := true
	for i := range values {
		out[i] = keyed[T]{partition(&values[i]).ID(), &values[i]}
		sorted = sorted && (i == 0 || out[i-1].id <= out[i].id)
	}
	if !sorted {
		slices.SortStableFunc(out, func(a, b keyed[T]) int { return strings.Compare(a.id, b.id) })
	}
	return out
}
