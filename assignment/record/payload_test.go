package record_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPayloadIsCanonical(t *testing.T) {
	want, err := record.EncodePayload(entries())
	require.NoError(t, err)
	shuffled := entries()
	slices.Reverse(shuffled)
	shuffled[0].From = slices.Clone(shuffled[0].From)
	before := slices.Clone(shuffled)
	got, err := record.EncodePayload(shuffled)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	require.Equal(t, before, shuffled, "the caller's slice is left alone")
	require.True(t, json.Valid(got))
	require.Equal(t, record.SetDigest(entries()), record.SetDigest(shuffled))

	p := parked()
	want, err = record.EncodeParked(p)
	require.NoError(t, err)
	slices.Reverse(p)
	got, err = record.EncodeParked(p)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestEncodeRefuses(t *testing.T) {
	with := func(change func(e *types.AssignmentEntry)) []types.AssignmentEntry {
		es := entries()
		change(&es[0])
		return es
	}
	h := holder(1)
	for text, es := range map[string][]types.AssignmentEntry{
		`"eu.orders.17" is listed twice`: append(entries(), entries()[0]),
		"has epoch 0":                    with(func(e *types.AssignmentEntry) { e.Epoch = 0 }),
		"no keys":                        with(func(e *types.AssignmentEntry) { e.Keys = nil }),
		`"\xff" is not UTF-8`:            with(func(e *types.AssignmentEntry) { e.Keys = []string{"\xff"} }),
		"names \"worker-1/" + life(1) + "\" twice": with(func(e *types.AssignmentEntry) {
			e.From = []types.From{{Holder: h, Version: 1}, {Holder: h, Version: 2}}
		}),
		"not sorted": with(func(e *types.AssignmentEntry) {
			e.From = []types.From{{Holder: holder(2), Version: 1}, {Holder: h, Version: 2}}
		}),
		"at version 0": with(func(e *types.AssignmentEntry) { e.From = []types.From{{Holder: h}} }),
		`"\xfe" is not`: with(func(e *types.AssignmentEntry) {
			e.From = []types.From{{Holder: types.Holder{Worker: "\xfe"}, Version: 1}}
		}),
	} {
		_, err := record.EncodePayload(es)
		require.ErrorIs(t, err, types.ErrMalformed, text)
		require.ErrorContains(t, err, text)
	}
	p := parked()
	_, err := record.EncodeParked(append(p, p[0]))
	require.ErrorIs(t, err, types.ErrMalformed)
	p[0].Epoch = 1
	_, err = record.EncodeParked(p)
	require.ErrorContains(t, err, "nobody owns it")
}

func TestDecodeEntriesRefuses(t *testing.T) {
	for _, text := range []string{
		"", "null", "[]", "{", `{"schema":1`, `{"schema":1}{}`, `{"schema":1} x`, `{"schema":1,"entries":{}}`, `{"schema":1,"entries":[`,
		`{"schema":1,"entries":[{}]}`,
		`{"schema":1,"entries":[null]}`,
		`{"schema":1,"entries":[{"keys":[]}]}`,
		`{"schema":1,"entries":[{"keys":["b"]},{"keys":["a"]}]}`,
		`{"schema":1,"entries":[{"keys":["a"]},{"keys":["a"]}]}`,
		`{"schema":1,"entries":[{"keys":["a"],"from":0}]}`,
		`{"schema":1,"entries":[{"keys":["a"],"from":-1}]}`,
		`{"schema":1,"from_lists":[[]],"entries":[]}`,
		`{"schema":1,"from_lists":[[{}]],"entries":[]}`,
		`{"schema":1,"from_lists":[[{"worker":"a","version":0}]],"entries":[]}`,
		`{"schema":1,"from_lists":[[{"worker":"b","version":1},{"worker":"a","version":1}]],"entries":[]}`,
	} {
		_, err := record.DecodeParked([]byte(text))
		require.ErrorIs(t, err, types.ErrMalformed, "parked %s", text)
		_, err = record.DecodePayload([]byte(text))
		require.ErrorIs(t, err, types.ErrMalformed, "payload %s", text)
	}
	_, err := record.DecodePayload([]byte(`{"schema":1,"entries":[{"keys":["a"]}]}`))
	require.ErrorContains(t, err, "epoch 0")
	_, err = record.DecodeParked([]byte(`{"schema":1,"entries":[{"keys":["a"],"epoch":1}]}`))
	require.ErrorContains(t, err, "epoch 1")
	_, err = record.DecodeShard([]byte(`{"schema":1,"refs":[]}`))
	require.ErrorContains(t, err, "no references")
}

// The table may stand behind the entries: the order of fields is canonical for writers only.
func TestFieldsInAnyOrder(t *testing.T) {
	p, err := record.DecodePayload([]byte(
		`{"entries":[{"from":0,"epoch":3,"keys":["a"]}],"from_lists":[[{"version":2,"worker":"w","incarnation":"i"}]],"schema":1}`))
	require.NoError(t, err)
	require.Equal(t, []types.From{{Holder: types.Holder{Worker: "w", Incarnation: "i"}, Version: 2}}, p.Entries[0].From)
}

func genEntries() *rapid.Generator[[]types.AssignmentEntry] {
	from := rapid.Custom(func(t *rapid.T) types.From {
		return types.From{Holder: types.Holder{
			Worker:      rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(t, "worker"),
			Incarnation: rapid.SampledFrom([]string{"", "i1", "i2"}).Draw(t, "incarnation"),
		}, Version: rapid.Int64Range(1, 3).Draw(t, "version")}
	})
	entry := rapid.Custom(func(t *rapid.T) types.AssignmentEntry {
		e := types.AssignmentEntry{Epoch: rapid.Int64Range(1, types.MaxVersion/2).Draw(t, "epoch")}
		e.Keys = rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "keys")
		e.Weight = rapid.Int64Range(0, 1<<40).Draw(t, "weight")
		e.Label = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "label")
		e.From = rapid.SliceOfNDistinct(from, 0, 4, func(f types.From) types.Holder { return f.Holder }).Draw(t, "from")
		slices.SortFunc(e.From, func(a, b types.From) int { return strings.Compare(a.String(), b.String()) })
		if len(e.From) == 0 {
			e.From = nil
		}
		return e
	})
	return rapid.SliceOfNDistinct(entry, 0, 10, func(e types.AssignmentEntry) string { return e.ID() })
}

func TestPayloadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := genEntries().Draw(t, "entries")
		raw, err := record.EncodePayload(es)
		require.NoError(t, err)
		require.True(t, json.Valid(raw))
		p, err := record.DecodePayload(raw)
		require.NoError(t, err)
		slices.SortFunc(es, func(a, b types.AssignmentEntry) int {
			if a.ID() < b.ID() {
				return -1
			}
			return 1
		})
		require.Len(t, p.Entries, len(es))
		require.Equal(t, len(es), cap(p.Entries), "none of it lies idle")
		for i := range es {
			require.Equal(t, es[i], p.Entries[i])
		}
		again, err := record.EncodePayload(p.Entries)
		require.NoError(t, err)
		require.Equal(t, string(raw), string(again))
		require.Equal(t, record.SetDigest(es), record.SetDigest(p.Entries))
	})
}

func TestSetDigestCoversIDsAndEpochs(t *testing.T) {
	seen := map[string]string{}
	add := func(name string, es ...types.AssignmentEntry) {
		d := record.SetDigest(es)
		require.Len(t, d, 32)
		require.NotContains(t, seen, d, name)
		seen[d] = name
	}
	e := func(epoch int64, keys ...string) types.AssignmentEntry {
		return types.AssignmentEntry{Partition: types.NewPartition(keys...), Epoch: epoch}
	}
	add("none")
	add("a", e(1, "a"))
	add("epoch", e(2, "a"))
	add("two", e(1, "a"), e(1, "b"))
	add("epochs swapped", e(1, "a"), e(2, "b"))
	add("epochs swapped back", e(2, "a"), e(1, "b"))
	add("joined", e(1, "ab"))
	add("two keys", e(1, "a", "b"))
	add("twice", e(1, "a"), e(1, "a"))

	changed := entries()
	changed[0].Weight, changed[0].Label, changed[0].From = 9, "x", nil
	require.Equal(t, record.SetDigest(entries()), record.SetDigest(changed))
}

func TestBatchDigestCoversEveryReference(t *testing.T) {
	base := refs(3)
	want := record.BatchDigest(base, "")
	reversed := slices.Clone(base)
	slices.Reverse(reversed)
	require.Equal(t, want, record.BatchDigest(reversed, ""))
	require.NotEqual(t, want, record.BatchDigest(base, record.Hash(nil)))
	require.NotEqual(t, want, record.BatchDigest(base[1:], ""))
	for i, change := range []func(r *types.AssignmentPayloadRef){
		func(r *types.AssignmentPayloadRef) { r.WorkerID += "x" },
		func(r *types.AssignmentPayloadRef) { r.Incarnation += "x" },
		func(r *types.AssignmentPayloadRef) { r.PayloadHash = record.Hash(nil) },
		func(r *types.AssignmentPayloadRef) { r.SetDigest = record.Hash(nil)[:32] },
		func(r *types.AssignmentPayloadRef) { r.GraceUntil = 1 },
	} {
		other := slices.Clone(base)
		change(&other[1])
		require.NotEqual(t, want, record.BatchDigest(other, ""), i)
	}
}
