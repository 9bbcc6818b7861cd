package source

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	"github.com/partigo/parti/internal/blob"
	"github.com/partigo/parti/internal/golden"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func sample() *list {
	return &list{
		Schema: 1, Revision: 1785456000000, Nonces: []string{"9b6d6f0e-0001", "9b6d6f0e-0000"}, Previous: []string{strings.Repeat("ab", 32)},
		Partitions: sorted([]types.Partition{
			types.NewPartition("eu", "orders", "17"), types.NewPartition("ä"), {Keys: []string{"a", "b"}, Weight: 250, Label: "gpu"},
		}),
	}
}

// The stored format: a change of it is a visible diff.
func TestGolden(t *testing.T) {
	raw, err := json.Marshal(sample())
	require.NoError(t, err)
	want := golden.Equal(t, "list.json", raw)

	// What was stored by any release of Go can be read.
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(want)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	got, err := decodeList(t.Context(), packed.Bytes(), nil, maxListSize)
	require.NoError(t, err)
	require.Equal(t, sample(), got)
}

func pack(t testing.TB, raw string) []byte {
	root, _, err := blob.Pack([]byte(raw))
	require.NoError(t, err)
	return root
}

func TestDecodeRefuses(t *testing.T) {
	for raw, want := range map[string]error{
		`{"schema":2,"revision":1,"nonces":["x"],"partitions":7}`:                               types.ErrUnsupportedSchema,
		`{"revision":1,"nonces":["x"],"partitions":[]}`:                                         types.ErrMalformed,
		`{"schema":1,"nonces":["x"],"partitions":[]}`:                                           types.ErrMalformed,
		`{"schema":1,"revision":1,"partitions":[]}`:                                             types.ErrMalformed,
		`{"schema":1,"revision":1,"nonces":["x"],"partitions":[{"keys":["a"]},{"keys":["a"]}]}`: types.ErrDuplicatePartition,
		`{"schema":1,"revision":1,"nonces":["x"],"partitions":[{"keys":["a.b"]}]}`:              types.ErrInvalidPartition,
		`{"schema":1,"revision":1,"nonces":["x"],"partitions":[{"keys":["a"],"weight":"x"}]}`:   types.ErrMalformed,
		`[]`:     types.ErrMalformed,
		`null`:   types.ErrMalformed,
		`{"sche`: types.ErrMalformed,
	} {
		l, err := decodeList(t.Context(), pack(t, raw), nil, maxListSize)
		require.ErrorIs(t, err, want, raw)
		require.Nil(t, l)
	}
	_, err := decodeList(t.Context(), []byte("orders-1,orders-2"), nil, maxListSize)
	require.ErrorIs(t, err, types.ErrMalformed)
	// Unknown fields are a newer minor release's.
	_, err = decodeList(t.Context(), pack(t, `{"schema":1,"revision":1,"nonces":["x"],"partitions":[{"keys":["a"],"zone":"b"}],"more":1}`), nil, maxListSize)
	require.NoError(t, err)
}

func TestBombIsRefused(t *testing.T) {
	_, err := decodeList(t.Context(), pack(t, strings.Repeat(" ", 1<<20+1)), nil, 1<<20)
	require.ErrorIs(t, err, types.ErrMalformed)
	require.ErrorIs(t, err, blob.ErrTooLarge)
}

func FuzzDecodeList(f *testing.F) {
	raw, err := json.Marshal(sample())
	require.NoError(f, err)
	f.Add(raw, true)
	f.Add([]byte(`{"schema":1,"revision":1,"nonces":["x"],"partitions":[{"keys":["a"]}]}`), true)
	f.Add(raw, false)
	f.Fuzz(func(t *testing.T, raw []byte, compress bool) {
		root := raw
		if compress {
			root = pack(t, string(raw))
		}
		l, err := decodeList(t.Context(), root, nil, maxListSize)
		if err != nil {
			require.Nil(t, l)
			return
		}
		require.NoError(t, types.ValidatePartitions(l.Partitions))
		again, _, err := encodeList(l)
		require.NoError(t, err)
		l2, err := decodeList(t.Context(), again, nil, maxListSize)
		require.NoError(t, err)
		require.Equal(t, len(l.Partitions), len(l2.Partitions))
		require.Equal(t, l.Revision, l2.Revision)
	})
}
