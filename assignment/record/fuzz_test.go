package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// known fails the test for an error that is not one of the two that readers act on.
func known(t *testing.T, err error) bool {
	t.Helper()
	require.True(t, err == nil || errors.Is(err, types.ErrMalformed) != errors.Is(err, types.ErrUnsupportedSchema), "%v", err)
	return err == nil
}

func FuzzDecodeCommit(f *testing.F) {
	for _, n := range []int{0, 2, 40} {
		c, _ := commit(f, refs(n), nil)
		raw, err := record.EncodeCommit(&c)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte(`{"schema":2}`))
	c, _ := commit(f, refs(2), nil)
	for _, v := range []int64{math.MaxInt64, math.MinInt64, types.MaxVersion, types.MaxVersion - 1} {
		c.Version = v
		raw, err := json.Marshal(c)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := record.DecodeCommit(data)
		if !known(t, err) {
			return
		}
		require.True(t, types.ValidVersion(c.Version))
		raw, err := record.EncodeCommit(&c)
		if err != nil { // only for a time that JSON cannot carry
			require.ErrorContains(t, err, "Time")
			return
		}
		again, err := record.DecodeCommit(raw)
		require.NoError(t, err)
		second, err := record.EncodeCommit(&again)
		require.NoError(t, err)
		require.Equal(t, string(raw), string(second))
		_, _, _ = record.FindRef(context.Background(), (&bucket{}).get, &c, "worker-0001")
	})
}

func FuzzDecodePayload(f *testing.F) {
	raw, err := record.EncodePayload(entries())
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"schema":1,"entries":[]}`))
	f.Add([]byte(`{"schema":1,"entries":[{"keys":["a"],"epoch":9223372036854775807}]}`))
	f.Add([]byte(`{"schema":1,"from_lists":[[{"worker":"w","incarnation":"i","version":4611686018427387904}]],"entries":[{"keys":["a"],"epoch":1,"from":0}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := record.DecodePayload(data)
		if !known(t, err) {
			return
		}
		for _, e := range p.Entries {
			require.True(t, types.ValidVersion(e.Epoch))
			for _, f := range e.From {
				require.True(t, types.ValidVersion(f.Version))
			}
		}
		raw, err := record.EncodePayload(p.Entries)
		require.NoError(t, err)
		again, err := record.DecodePayload(raw)
		require.NoError(t, err)
		require.Equal(t, p, again)
		require.Equal(t, record.SetDigest(p.Entries), record.SetDigest(again.Entries))
	})
}

func FuzzDecodeParked(f *testing.F) {
	raw, err := record.EncodeParked(parked())
	require.NoError(f, err)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := record.DecodeParked(data)
		if !known(t, err) {
			return
		}
		raw, err := record.EncodeParked(p.Entries)
		require.NoError(t, err)
		again, err := record.DecodeParked(raw)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func FuzzDecodeShard(f *testing.F) {
	index, err := record.BuildIndex(refs(40))
	require.NoError(f, err)
	f.Add(index.Blobs[0])
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := record.DecodeShard(data)
		if !known(t, err) {
			return
		}
		require.NotEmpty(t, s.Refs)
		require.LessOrEqual(t, len(s.Refs), record.MaxShardRefs)
		_, err = record.BuildIndex(s.Refs)
		require.NoError(t, err)
	})
}

// FuzzFetchBlob changes stored bytes: nothing but the right value may come out.
func FuzzFetchBlob(f *testing.F) {
	r, b := stored(f)
	f.Add(b.values[record.PayloadKey(r.PayloadHash)])
	f.Add([]byte(`{"schema":1,"sha256":"` + r.PayloadHash + `","size":3,"chunks":["` + record.Hash([]byte("abc")) + `"]}`))
	want, err := record.EncodePayload(entries())
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		get := func(_ context.Context, key string) ([]byte, error) {
			if key == record.PayloadKey(r.PayloadHash) {
				return data, nil
			}
			return []byte("abc"), nil
		}
		raw, err := record.FetchBlob(context.Background(), get, r.PayloadHash)
		if err == nil {
			require.Equal(t, string(want), string(raw))
		} else {
			require.NotEmpty(t, record.Stage(err))
		}
		_, _ = record.ChunkKeys(data)
	})
}
