package checker

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The limits of the format, stated again rather than imported.
const (
	maxCommitSize = 8 << 10
	maxInline     = 32 // worker references in a commit or a shard
	maxPiece      = 512 << 10
	maxUnreturned = 64
	maxValue      = 1 << 30 // uncompressed; no test comes near
)

// Holder is one life of a worker: its ID and the incarnation.
type Holder struct {
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"`
}

func (h Holder) String() string { return h.Worker + "/" + h.Incarnation }

// Item is one earlier holder in the `from` of a partition.
type Item struct {
	Holder
	Version int64 `json:"version"`
}

type commit struct {
	Schema              int       `json:"schema"`
	Version             int64     `json:"version"`
	LeaderRevision      uint64    `json:"leader_revision"`
	TermHolder          Holder    `json:"term_holder"`
	BatchDigest         string    `json:"batch_digest"`
	Workers             int       `json:"workers"`
	Partitions          int       `json:"partitions"`
	Refs                []ref     `json:"refs,omitempty"`
	Shards              []shard   `json:"shards,omitempty"`
	Parked              string    `json:"parked,omitempty"`
	Lifecycle           string    `json:"lifecycle"`
	SourceRevision      uint64    `json:"source_revision,omitempty"`
	SourceRevisionKnown bool      `json:"source_revision_known,omitempty"`
	PreviousRevision    uint64    `json:"previous_revision"`
	PublishedAt         time.Time `json:"published_at"`
	Nonce               string    `json:"nonce"`
}

type shard struct {
	First string `json:"first"`
	Hash  string `json:"hash"`
}

type ref struct {
	Worker      string `json:"w"`
	Incarnation string `json:"i"`
	Payload     string `json:"p"`
	SetDigest   string `json:"d"`
	GraceUntil  int64  `json:"g,omitempty"`
}

func (r ref) holder() Holder { return Holder{r.Worker, r.Incarnation} }

type shardBlob struct {
	Schema int   `json:"schema"`
	Refs   []ref `json:"refs"`
}

// payloadBlob is a payload or a parked list. Each different `from` is in the table once, in the order of first use.
type payloadBlob struct {
	Schema    int      `json:"schema"`
	FromLists [][]Item `json:"from_lists,omitempty"`
	Entries   []entry  `json:"entries"`
}

type entry struct {
	Keys    []string `json:"keys"`
	Weight  int64    `json:"weight,omitempty"`
	Label   string   `json:"label,omitempty"`
	Epoch   int64    `json:"epoch,omitempty"`
	From    *int     `json:"from,omitempty"` // index into the table
	Reason  string   `json:"reason,omitempty"`
	Retired bool     `json:"retired,omitempty"`
}

type leaderValue struct {
	Worker        string    `json:"worker"`
	Incarnation   string    `json:"incarnation"`
	Term          uint64    `json:"term"` // 0 in the write that acquires
	AcquiredAt    time.Time `json:"acquired_at"`
	CommitVersion int64     `json:"commit_version"`
	Nonce         string    `json:"nonce"`
}

func (l leaderValue) holder() Holder { return Holder{l.Worker, l.Incarnation} }

type run struct {
	Partition string `json:"partition"`
	Epoch     int64  `json:"epoch"`
}

type heartbeat struct {
	WorkerID              string   `json:"worker_id"`
	Incarnation           string   `json:"incarnation"`
	SchemaVersion         int      `json:"schema_version"`
	Capabilities          uint32   `json:"capabilities"`
	Labels                []string `json:"labels,omitempty"`
	Capacity              capacity `json:"capacity,omitzero"`
	State                 string   `json:"state"`
	LeaderRevision        uint64   `json:"leader_revision,omitempty"`
	AppliedVersion        int64    `json:"applied_version"`
	AppliedDigest         string   `json:"applied_digest,omitempty"`
	AppliedSourceRevision uint64   `json:"applied_source_revision,omitempty"`
	Unreturned            []run    `json:"unreturned,omitempty"`
	ClaimedOver           string   `json:"claimed_over"`
	Nonce                 string   `json:"nonce"`
}

// capacity is what a worker takes at most; 0: no such bound.
type capacity struct {
	Partitions int   `json:"partitions,omitempty"`
	Weight     int64 `json:"weight,omitempty"`
}

const capAck = 1 // the worker acknowledges commits

func (h *heartbeat) holder() Holder { return Holder{h.WorkerID, h.Incarnation} }

func (h *heartbeat) gone() bool { return h.State == "left" || h.State == "restarting" }

func (h *heartbeat) names(partition string) bool {
	for _, r := range h.Unreturned {
		if r.Partition == partition {
			return true
		}
	}
	return false
}

func partitionID(keys []string) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteByte('.')
		}
		if k == "" {
			b.WriteByte('=')
		}
		for _, c := range []byte(k) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '/':
				b.WriteByte(c)
			default:
				fmt.Fprintf(&b, "=%02X", c)
			}
		}
	}
	return b.String()
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// sum accumulates the fields of a digest: texts after their length as uvarint, numbers as eight bytes, big end first.
type sum []byte

func (s *sum) text(t string)  { *s = append(binary.AppendUvarint(*s, uint64(len(t))), t...) }
func (s *sum) number(n int64) { *s = binary.BigEndian.AppendUint64(*s, uint64(n)) }
func (s *sum) digest() string { return hashOf(*s)[:32] }

// setDigest expects the entries sorted by ID.
func setDigest(ids []string, epochs []int64) string {
	var s sum
	for i, id := range ids {
		s.text(id)
		s.number(epochs[i])
	}
	return s.digest()
}

func batchDigest(refs []ref, parked string) string {
	var s sum
	for _, r := range refs {
		s.text(r.Worker)
		s.text(r.Incarnation)
		s.text(r.Payload)
		s.text(r.SetDigest)
		s.number(r.GraceUntil)
	}
	s.text(parked)
	return s.digest()
}

type manifest struct {
	Schema int      `json:"schema"`
	SHA256 string   `json:"sha256"`
	Size   int64    `json:"size"` // of the compressed value
	Chunks []string `json:"chunks"`
}

// errForm marks a value that is there and breaks the format, as against one that could not be read.
var errForm = errors.New("malformed")

func formf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errForm}, args...)...)
}

// unpack returns the uncompressed value of a root; chunk reads a chunk by its hash.
func unpack(root []byte, hash string, chunk func(hash string) ([]byte, error)) ([]byte, error) {
	if len(root) > maxPiece {
		return nil, formf("a stored value of %d bytes, at most %d are allowed", len(root), maxPiece)
	}
	packed := root
	if !bytes.HasPrefix(root, []byte{0x1f, 0x8b}) {
		var m manifest
		if err := json.Unmarshal(root, &m); err != nil {
			return nil, formf("neither gzip nor a manifest: %v", err)
		}
		if m.Schema != 1 || m.SHA256 != hash || len(m.Chunks) < 2 {
			return nil, formf("manifest of schema %d for %s with %d chunks", m.Schema, m.SHA256, len(m.Chunks))
		}
		packed = nil
		for i, h := range m.Chunks {
			c, err := chunk(h)
			if err != nil {
				return nil, err
			}
			if hashOf(c) != h || len(c) > maxPiece || i < len(m.Chunks)-1 && len(c) != maxPiece {
				return nil, formf("chunk %s has %d bytes of hash %s", h, len(c), hashOf(c))
			}
			packed = append(packed, c...)
		}
		if int64(len(packed)) != m.Size {
			return nil, formf("chunks of %d bytes, the manifest says %d", len(packed), m.Size)
		}
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, formf("gzip: %v", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxValue))
	if err != nil {
		return nil, formf("gzip: %v", err)
	}
	if got := hashOf(raw); got != hash {
		return nil, formf("the value under %s has hash %s", hash, got)
	}
	return raw, nil
}

// decodeExact decodes a value that must be in canonical form: encoding it again gives the same bytes.
func decodeExact(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return formf("%v", err)
	}
	again, err := encode(v)
	if err != nil {
		return formf("%v", err)
	}
	if !bytes.Equal(raw, again) {
		return formf("not canonical: %.200s, expected %.200s", raw, again)
	}
	return nil
}

// encode is canonical JSON: no white space, and nothing escaped that need not be.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
