package blob

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// ChunkSize is the most that one piece holds, in bytes: half of what a server takes by default.
	ChunkSize = 512 << 10

	schema = 1
	// maxRatio is the most that deflate can compress, a little rounded up.
	maxRatio = 1100
)

// The stages at which [Unpack] can fail. They are wrapped with detail; compare with errors.Is.
var (
	// ErrFetch: a chunk could not be read. The reader's error is wrapped too.
	ErrFetch = errors.New("blob: chunk cannot be read")
	// ErrManifest: the root is neither a compressed value nor a manifest of this schema.
	ErrManifest = errors.New("blob: root cannot be decoded")
	// ErrDecompress: the compressed bytes are damaged.
	ErrDecompress = errors.New("blob: value cannot be decompressed")
	// ErrHashMismatch: a chunk, or the value as a whole, is not what its hash says.
	ErrHashMismatch = errors.New("blob: hash mismatch")
	// ErrTooLarge: the value, or what its manifest announces, is over the limit.
	ErrTooLarge = errors.New("blob: value over the limit")
)

// manifest is the root of a value that does not fit into one piece.
type manifest struct {
	Schema int      `json:"schema"`
	SHA256 string   `json:"sha256"` // of the uncompressed value
	Size   int64    `json:"size"`   // of the gzip stream
	Chunks []string `json:"chunks"`
}

// Getter reads the chunk of that hash.
type Getter func(ctx context.Context, hash string) ([]byte, error)

// Hash returns the lower-case hexadecimal SHA-256 of b.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Pack returns the root of raw, and its chunks by their hash; there are none where the root is all. The chunks share memory
// with each other.
func Pack(raw []byte) (root []byte, chunks map[string][]byte, err error) {
	packed, err := compress(raw)
	if err != nil {
		return nil, nil, err
	}
	if len(packed) <= ChunkSize {
		return packed, nil, nil
	}
	m := manifest{Schema: schema, SHA256: Hash(raw), Size: int64(len(packed))}
	chunks = make(map[string][]byte, len(packed)/ChunkSize+1)
	for rest := packed; len(rest) > 0; {
		n := min(len(rest), ChunkSize)
		h := Hash(rest[:n])
		chunks[h] = rest[:n:n]
		m.Chunks = append(m.Chunks, h)
		rest = rest[n:]
	}
	root, err = json.Marshal(m)
	if err != nil {
		return nil, nil, fmt.Errorf("blob: manifest: %w", err)
	}
	return root, chunks, nil
}

// Unpack returns the value of root, of at most limit bytes. want is the hash that the value must have; empty leaves it to the
// root, which knows the hash only if there are chunks. get may be nil where no chunks are expected.
func Unpack(ctx context.Context, root []byte, want string, get Getter, limit int64) ([]byte, error) {
	packed := root
	if !compressed(root) {
		m, err := decodeManifest(root, limit)
		if err != nil {
			return nil, err
		}
		if want == "" {
			want = m.SHA256
		} else if want != m.SHA256 {
			return nil, fmt.Errorf("%w: the manifest is of value %s, expected %s", ErrHashMismatch, m.SHA256, want)
		}
		if packed, err = join(ctx, m, get); err != nil {
			return nil, err
		}
	}
	raw, err := decompress(packed, limit)
	if err != nil {
		return nil, err
	}
	if want != "" {
		if got := Hash(raw); got != want {
			return nil, fmt.Errorf("%w: the value is %s, expected %s", ErrHashMismatch, got, want)
		}
	}
	return raw, nil
}

// Chunks returns the hashes of the chunks that root names, in order; none where the root is all.
func Chunks(root []byte) ([]string, error) {
	if compressed(root) {
		return nil, nil
	}
	m, err := decodeManifest(root, 1<<62)
	return m.Chunks, err
}

func compressed(root []byte) bool { return len(root) >= 2 && root[0] == 0x1f && root[1] == 0x8b }

func decodeManifest(root []byte, limit int64) (manifest, error) {
	var m manifest
	bad := func(format string, args ...any) (manifest, error) {
		return manifest{}, fmt.Errorf("%w: "+format, append([]any{ErrManifest}, args...)...)
	}
	if err := json.Unmarshal(root, &m); err != nil {
		return bad("%d bytes: %w", len(root), err)
	}
	switch need := (m.Size + ChunkSize - 1) / ChunkSize; {
	case m.Schema != schema:
		return bad("schema %d, this release reads %d", m.Schema, schema)
	case !isHash(m.SHA256):
		return bad("hash %q", m.SHA256)
	case m.Size <= 0 || need != int64(len(m.Chunks)):
		return bad("%d chunks for %d bytes", len(m.Chunks), m.Size)
	case m.Size-m.Size/16 > limit+ChunkSize: // incompressible values grow, by far less than this
		return manifest{}, fmt.Errorf("%w: %d bytes compressed, the limit is %d", ErrTooLarge, m.Size, limit)
	}
	for _, h := range m.Chunks {
		if !isHash(h) {
			return bad("chunk %q", h)
		}
	}
	return m, nil
}

func isHash(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// join fetches the chunks one after the other and returns the gzip stream that they make up.
func join(ctx context.Context, m manifest, get Getter) ([]byte, error) {
	if get == nil {
		return nil, fmt.Errorf("%w: %d chunks are not expected here", ErrFetch, len(m.Chunks))
	}
	var packed []byte
	for i, h := range m.Chunks {
		c, err := get(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("%w: chunk %d of %d, %s: %w", ErrFetch, i+1, len(m.Chunks), h, err)
		}
		size := min(m.Size-int64(len(packed)), ChunkSize)
		if int64(len(c)) != size || Hash(c) != h {
			return nil, fmt.Errorf("%w: chunk %d of %d, %s, has %d bytes of other content, expected %d",
				ErrHashMismatch, i+1, len(m.Chunks), h, len(c), size)
		}
		packed = append(packed, c...)
	}
	return packed, nil
}

// writers are kept for reuse: a new one clears more than a megabyte, many times what most values cost.
var writers = sync.Pool{New: func() any {
	// The fastest level: it takes a third of the default level's time for a tenth more bytes.
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails for an invalid level only
	return w
}}

// compress sets neither name nor time, so the same value gives the same bytes.
func compress(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("blob: compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("blob: compress: %w", err)
	}
	return b.Bytes(), nil
}

func decompress(packed []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDecompress, err)
	}
	var b bytes.Buffer
	b.Grow(int(min(claimed(packed), limit, int64(len(packed))*maxRatio)) + bytes.MinRead)
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: after %d bytes: %w", ErrDecompress, n, err)
	case n > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return b.Bytes(), nil
}

// claimed returns the uncompressed size that a gzip stream claims in its last four bytes. It is good for a guess only.
func claimed(packed []byte) int64 {
	if len(packed) < 4 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
}
