package record

import (
	"strconv"
	"strings"

	"github.com/partigo/parti/internal/blob"
)

// Keys in the control bucket. The commit has two tokens, so the server republishes it; the others are read on demand.
const (
	CommitKey     = "assignment._commit"
	LogPrefix     = "assignment._commit_log."
	PayloadPrefix = "assignment._payload."
	ChunkPrefix   = "assignment._chunk."
)

// PayloadKey is where the blob of that hash lies: a payload, a shard or a parked list, or the root of its chunks.
func PayloadKey(hash string) string { return PayloadPrefix + hash }

// ChunkKey is where the chunk of that hash lies.
func ChunkKey(hash string) string { return ChunkPrefix + hash }

// LogKey is where the copy of the commit of that version lies.
func LogKey(version int64) string { return LogPrefix + strconv.FormatInt(version, 10) }

// ParseLogKey returns the version of a key made by [LogKey].
func ParseLogKey(key string) (version int64, ok bool) {
	digits, ok := strings.CutPrefix(key, LogPrefix)
	if !ok {
		return 0, false
	}
	version, err := strconv.ParseInt(digits, 10, 64)
	return version, err == nil && version > 0 && LogKey(version) == key
}

// Hash is the content address of a blob: the lower-case hexadecimal sha256 of its uncompressed bytes.
func Hash(raw []byte) string { return blob.Hash(raw) }

func isHex(s string, digits int) bool {
	if len(s) != digits {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isHash(s string) bool { return isHex(s, 64) }

func isDigest(s string) bool { return isHex(s, digestDigits) }
