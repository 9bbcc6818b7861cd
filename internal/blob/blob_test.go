package blob_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/partigo/parti/internal/blob"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const limit = 64 << 20

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func getter(chunks map[string][]byte) blob.Getter {
	return func(_ context.Context, hash string) ([]byte, error) {
		c, ok := chunks[hash]
		if !ok {
			return nil, errors.New("missing")
		}
		return c, nil
	}
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, blob.ChunkSize - 1000, blob.ChunkSize, blob.ChunkSize + 1, 2 * blob.ChunkSize, 3*blob.ChunkSize + 7} {
		raw := noise(n)
		root, chunks, err := blob.Pack(raw)
		require.NoError(t, err)
		require.LessOrEqual(t, len(root), blob.ChunkSize)
		names, err := blob.Chunks(root)
		require.NoError(t, err)
		require.Len(t, names, len(chunks))
		for hash, c := range chunks {
			require.Equal(t, hash, blob.Hash(c))
			require.LessOrEqual(t, len(c), blob.ChunkSize)
			require.Contains(t, names, hash)
		}
		for _, want := range []string{"", blob.Hash(raw)} {
			got, err := blob.Unpack(t.Context(), root, want, getter(chunks), limit)
			require.NoError(t, err)
			require.True(t, bytes.Equal(raw, got))
		}
		again, chunks2, err := blob.Pack(raw)
		require.NoError(t, err)
		require.Equal(t, root, again)
		require.Equal(t, chunks, chunks2)
	}
}

func TestRoundTripProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
		root, chunks, err := blob.Pack(raw)
		require.NoError(t, err)
		got, err := blob.Unpack(context.Background(), root, blob.Hash(raw), getter(chunks), int64(len(raw)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, got))
	})
}

func TestDamageIsNoticed(t *testing.T) {
	raw := noise(2*blob.ChunkSize + 5)
	root, chunks, err := blob.Pack(raw)
	require.NoError(t, err)
	names, err := blob.Chunks(root)
	require.NoError(t, err)
	small, _, err := blob.Pack([]byte("hello"))
	require.NoError(t, err)

	change := func(f func(map[string][]byte)) blob.Getter {
		c := map[string][]byte{}
		for k, v := range chunks {
			c[k] = bytes.Clone(v)
		}
		f(c)
		return getter(c)
	}
	for name, tc := range map[string]struct {
		root  []byte
		want  string
		get   blob.Getter
		limit int64
		err   error
	}{
		"missing chunk":   {root, "", change(func(c map[string][]byte) { delete(c, names[1]) }), limit, blob.ErrFetch},
		"no getter":       {root, "", nil, limit, blob.ErrFetch},
		"flipped bit":     {root, "", change(func(c map[string][]byte) { c[names[1]][7] ^= 1 }), limit, blob.ErrHashMismatch},
		"short chunk":     {root, "", change(func(c map[string][]byte) { c[names[0]] = c[names[0]][:9] }), limit, blob.ErrHashMismatch},
		"swapped chunks":  {root, "", change(func(c map[string][]byte) { c[names[0]], c[names[1]] = c[names[1]], c[names[0]] }), limit, blob.ErrHashMismatch},
		"other manifest":  {root, blob.Hash([]byte("x")), getter(chunks), limit, blob.ErrHashMismatch},
		"manifest lies":   {bytes.Replace(root, []byte(blob.Hash(raw)), []byte(blob.Hash([]byte("x"))), 1), "", getter(chunks), limit, blob.ErrHashMismatch},
		"over the limit":  {root, "", getter(chunks), blob.ChunkSize / 2, blob.ErrTooLarge},
		"just over":       {root, "", getter(chunks), int64(len(raw)) - 1, blob.ErrTooLarge},
		"other value":     {small, blob.Hash([]byte("x")), nil, limit, blob.ErrHashMismatch},
		"truncated":       {small[:len(small)-9], "", nil, limit, blob.ErrDecompress},
		"wrong checksum":  {append(bytes.Clone(small[:len(small)-8]), 0, 0, 0, 0, 5, 0, 0, 0), "", nil, limit, blob.ErrDecompress},
		"trailing bytes":  {append(bytes.Clone(small), 'x'), "", nil, limit, blob.ErrDecompress},
		"nothing":         {nil, "", nil, limit, blob.ErrManifest},
		"no JSON":         {[]byte("hello"), "", nil, limit, blob.ErrManifest},
		"empty manifest":  {[]byte("{}"), "", nil, limit, blob.ErrManifest},
		"newer schema":    {bytes.Replace(root, []byte(`"schema":1`), []byte(`"schema":2`), 1), "", getter(chunks), limit, blob.ErrManifest},
		"negative size":   {[]byte(`{"schema":1,"sha256":"` + blob.Hash(nil) + `","size":-1,"chunks":[]}`), "", nil, limit, blob.ErrManifest},
		"bad chunk name":  {bytes.Replace(root, []byte(names[0]), []byte(strings.ToUpper(names[0])), 1), "", getter(chunks), limit, blob.ErrManifest},
		"too many chunks": {[]byte(fmt.Sprintf(`{"schema":1,"sha256":"%s","size":1,"chunks":["%s","%s"]}`, names[0], names[0], names[1])), "", nil, limit, blob.ErrManifest},
	} {
		got, err := blob.Unpack(t.Context(), tc.root, tc.want, tc.get, tc.limit)
		require.ErrorIs(t, err, tc.err, name)
		require.Nil(t, got, name)
	}
}

func TestGetterErrorIsWrapped(t *testing.T) {
	root, _, err := blob.Pack(noise(2 * blob.ChunkSize))
	require.NoError(t, err)
	mine := errors.New("mine")
	_, err = blob.Unpack(t.Context(), root, "", func(context.Context, string) ([]byte, error) { return nil, mine }, limit)
	require.ErrorIs(t, err, mine)
	require.ErrorIs(t, err, blob.ErrFetch)
}

// A bomb costs no more memory than the limit, whatever it claims.
func TestBombIsBounded(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 32 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.Less(t, b.Len(), blob.ChunkSize)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := blob.Unpack(t.Context(), b.Bytes(), "", nil, 1<<20)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, blob.ErrTooLarge)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

func FuzzUnpack(f *testing.F) {
	small, _, err := blob.Pack([]byte("hello"))
	require.NoError(f, err)
	root, chunks, err := blob.Pack(noise(blob.ChunkSize + 1))
	require.NoError(f, err)
	f.Add(small)
	f.Add(root)
	f.Add([]byte(`{"schema":1}`))
	f.Fuzz(func(t *testing.T, root []byte) {
		_, _ = blob.Chunks(root)
		raw, err := blob.Unpack(t.Context(), root, "", getter(chunks), 1<<20)
		if err != nil {
			require.Nil(t, raw)
			return
		}
		require.LessOrEqual(t, len(raw), 1<<20)
		again, more, err := blob.Pack(raw)
		require.NoError(t, err)
		got, err := blob.Unpack(t.Context(), again, blob.Hash(raw), getter(more), 1<<20)
		require.NoError(t, err)
		require.True(t, bytes.Equal(raw, got))
	})
}

func BenchmarkPack(b *testing.B) {
	raw := bytes.Repeat([]byte(`{"keys":["eu","orders","17"],"weight":120},`), 100_000)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, _, err := blob.Pack(raw); err != nil {
			b.Fatal(err)
		}
	}
}
