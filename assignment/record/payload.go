package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"

	"github.com/partigo/parti/types"
)

// EncodePayload returns the canonical bytes of what one worker owns. The order of the entries does not matter. An entry without
// a possible epoch, a partition listed twice or text that is not UTF-8 is types.ErrMalformed.
func EncodePayload(entries []types.AssignmentEntry) ([]byte, error) {
	const what = "payload"
	l := newListWriter(what, len(entries))
	for i, e := range sortedByID(entries, func(e *types.AssignmentEntry) *types.Partition { return &e.Partition }) {
		if !types.ValidVersion(e.value.Epoch) {
			return nil, malformed(what, "%q has epoch %d: that of an owned partition lies between 0 and %d", e.id, e.value.Epoch, types.VersionLimit())
		}
		if err := l.entry(i, e.id, e.value); err != nil {
			return nil, err
		}
		l.raw("}")
	}
	return l.finish()
}

// EncodeParked returns the canonical bytes of the list of entries without an owner. The order does not matter. An entry with an
// epoch, a partition listed twice or text that is not UTF-8 is types.ErrMalformed.
func EncodeParked(entries []types.ParkedEntry) ([]byte, error) {
	const what = "parked list"
	l := newListWriter(what, len(entries))
	for i, e := range sortedByID(entries, func(e *types.ParkedEntry) *types.Partition { return &e.Partition }) {
		if e.value.Epoch != 0 {
			return nil, malformed(what, "%q has epoch %d: nobody owns it", e.id, e.value.Epoch)
		}
		if err := l.entry(i, e.id, &e.value.AssignmentEntry); err != nil {
			return nil, err
		}
		if e.value.Reason != "" {
			l.raw(`,"reason":`)
			l.text(e.value.Reason)
		}
		if e.value.Retired {
			l.raw(`,"retired":true`)
		}
		l.raw("}")
	}
	return l.finish()
}

// listWriter writes entries and collects their `from` lists on the side, since the table stands before the entries.
type listWriter struct {
	writer
	what   string
	lastID string
	table  writer
	// index has the place in the table of each list by its encoding; known saves encoding a list again that is the same memory.
	index map[string]int
	known map[fromKey]int
}

type fromKey struct {
	first *types.From
	len   int
}

func newListWriter(what string, entries int) *listWriter {
	l := &listWriter{what: what, index: make(map[string]int), known: make(map[fromKey]int)}
	l.buf = make([]byte, 0, 64+entries*80)
	return l
}

// entry writes an entry up to, but without, its closing brace.
func (l *listWriter) entry(i int, id string, e *types.AssignmentEntry) error {
	if i > 0 && id == l.lastID {
		return malformed(l.what, "%q is listed twice", id)
	}
	l.lastID = id
	if len(e.Keys) == 0 {
		return malformed(l.what, "entry %d has no keys", i)
	}
	l.item(i)
	l.raw(`{"keys":[`)
	for k, key := range e.Keys {
		l.item(k)
		l.text(key)
	}
	l.raw("]")
	if e.Weight != 0 {
		l.raw(`,"weight":`)
		l.int(e.Weight)
	}
	if e.Label != "" {
		l.raw(`,"label":`)
		l.text(e.Label)
	}
	if e.Epoch != 0 {
		l.raw(`,"epoch":`)
		l.int(e.Epoch)
	}
	if len(e.From) > 0 {
		n, err := l.from(id, e.From)
		if err != nil {
			return err
		}
		l.raw(`,"from":`)
		l.int(int64(n))
	}
	return nil
}

// from returns the index in the table of the list.
func (l *listWriter) from(id string, list []types.From) (int, error) {
	key := fromKey{unsafe.SliceData(list), len(list)}
	if n, ok := l.known[key]; ok {
		return n, nil
	}
	if err := checkFrom(list); err != nil {
		return 0, malformed(l.what, "%q: %w", id, err)
	}
	start := len(l.table.buf)
	l.table.item(len(l.index))
	first := len(l.table.buf)
	l.table.raw("[")
	for i := range list {
		f := &list[i]
		l.table.item(i)
		l.table.raw(`{"worker":`)
		l.table.text(f.Worker)
		l.table.raw(`,"incarnation":`)
		l.table.text(f.Incarnation)
		l.table.raw(`,"version":`)
		l.table.int(f.Version)
		l.table.raw("}")
	}
	l.table.raw("]")
	n, ok := l.index[string(l.table.buf[first:])]
	if ok {
		l.table.buf = l.table.buf[:start]
	} else {
		n = len(l.index)
		l.index[string(l.table.buf[first:])] = n
	}
	l.known[key] = n
	return n, nil
}

func (l *listWriter) finish() ([]byte, error) {
	table, err := l.table.bytes(l.what)
	if err != nil {
		return nil, err
	}
	entries, err := l.bytes(l.what)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(table)+len(entries)+64)
	out = fmt.Appendf(out, `{"schema":%d`, types.CommitSchema)
	if len(table) > 0 {
		out = append(out, `,"from_lists":[`...)
		out = append(out, table...)
		out = append(out, ']')
	}
	out = append(out, `,"entries":[`...)
	out = append(out, entries...)
	return append(out, "]}"...), nil
}

// checkFrom checks what a `from` list promises: one item for each incarnation, sorted, each with a version.
func checkFrom(list []types.From) error {
	if len(list) == 0 {
		return fmt.Errorf("a `from` list is empty")
	}
	for i := range list {
		f := &list[i]
		if f.Worker == "" || !types.ValidVersion(f.Version) {
			return fmt.Errorf("`from` names %q at version %d", f.Holder, f.Version)
		}
		if i > 0 && compareHolders(list[i-1].Holder, f.Holder) >= 0 {
			return fmt.Errorf("`from` is not sorted, or names %q twice", f.Holder)
		}
	}
	return nil
}

// compareHolders orders holders by worker, then by incarnation: the order of `from`.
func compareHolders(a, b types.Holder) int {
	return cmp.Or(strings.Compare(a.Worker, b.Worker), strings.Compare(a.Incarnation, b.Incarnation))
}

// DecodePayload decodes the bytes of a payload. Entries with equal `from` share its memory, which must not be changed.
// Errors wrap types.ErrMalformed or types.ErrUnsupportedSchema.
func DecodePayload(raw []byte) (types.AssignmentPayload, error) {
	p := types.AssignmentPayload{Schema: types.CommitSchema}
	// Growing as needed would leave up to a half unused, for as long as the worker follows this commit.
	if n := min(bytes.Count(raw, []byte(`{"keys":`)), len(raw)/len(`{"keys":["k"],"epoch":1}`)); n > 0 {
		p.Entries = make([]types.AssignmentEntry, 0, n)
	}
	err := readEntries("payload", raw, func(e *wireEntry) error {
		if !types.ValidVersion(e.Epoch) {
			return fmt.Errorf("%q has epoch %d", e.ID(), e.Epoch)
		}
		p.Entries = append(p.Entries, types.AssignmentEntry{Partition: e.Partition, Epoch: e.Epoch})
		return nil
	}, func(i int, from []types.From) { p.Entries[i].From = from })
	if err != nil {
		return types.AssignmentPayload{}, err
	}
	return p, nil
}

// DecodeParked decodes the bytes of a list of entries without an owner. Like [DecodePayload].
func DecodeParked(raw []byte) (types.ParkedPayload, error) {
	p := types.ParkedPayload{Schema: types.CommitSchema}
	err := readEntries("parked list", raw, func(e *wireEntry) error {
		if e.Epoch != 0 {
			return fmt.Errorf("%q has epoch %d", e.ID(), e.Epoch)
		}
		entry := types.AssignmentEntry{Partition: e.Partition}
		p.Entries = append(p.Entries, types.ParkedEntry{AssignmentEntry: entry, Reason: e.Reason, Retired: e.Retired})
		return nil
	}, func(i int, from []types.From) { p.Entries[i].From = from })
	if err != nil {
		return types.ParkedPayload{}, err
	}
	return p, nil
}

// wireEntry is an entry as it lies in a blob: `from` is an index.
type wireEntry struct {
	types.Partition
	Epoch   int64  `json:"epoch"`
	From    *int   `json:"from"`
	Reason  string `json:"reason"`
	Retired bool   `json:"retired"`
}

// readEntries decodes a payload or a parked list: it gives add each entry, in order, and then link the `from` list of those that
// have one.
func readEntries(what string, raw []byte, add func(*wireEntry) error, link func(i int, from []types.From)) error {
	type use struct{ entry, list int }
	var (
		lists   [][]types.From
		uses    []use
		count   int
		lastID  string
		interns = make(interns)
	)
	fields := map[string]func(*json.Decoder) error{
		"from_lists": func(dec *json.Decoder) error {
			return readList(dec, func(dec *json.Decoder) error {
				list, err := readFrom(dec, interns)
				lists = append(lists, list)
				return err
			})
		},
		"entries": func(dec *json.Decoder) error {
			return readList(dec, func(dec *json.Decoder) error {
				var e wireEntry
				if err := dec.Decode(&e); err != nil {
					return err
				}
				id := e.ID()
				switch {
				case len(e.Keys) == 0:
					return fmt.Errorf("entry %d has no keys", count)
				case count > 0 && id <= lastID:
					return fmt.Errorf("%q follows %q: not sorted, or listed twice", id, lastID)
				case e.From != nil:
					uses = append(uses, use{count, *e.From})
				}
				e.Label = interns.of(e.Label)
				lastID = id
				count++
				return add(&e)
			})
		},
	}
	if err := readObject(what, raw, fields); err != nil {
		return err
	}
	for _, u := range uses {
		if u.list < 0 || u.list >= len(lists) {
			return malformed(what, "entry %d refers to `from` list %d of %d", u.entry, u.list, len(lists))
		}
		link(u.entry, lists[u.list])
	}
	return nil
}

func readFrom(dec *json.Decoder, interns interns) ([]types.From, error) {
	var list []types.From
	err := readList(dec, func(dec *json.Decoder) error {
		var f types.From
		if err := dec.Decode(&f); err != nil {
			return err
		}
		f.Worker, f.Incarnation = interns.of(f.Worker), interns.of(f.Incarnation)
		list = append(list, f)
		return checkFrom(list[max(0, len(list)-2):])
	})
	if err == nil {
		err = checkFrom(list)
	}
	return list, err
}

// interns keeps one copy of texts that occur again and again.
type interns map[string]string

func (in interns) of(s string) string {
	if s == "" {
		return ""
	}
	if known, ok := in[s]; ok {
		return known
	}
	in[s] = s
	return s
}
