package types

import "time"

// MaxVersion bounds the versions of commits, and with them epochs: all lie below it, always. Below it a version is exact in every reader
// of JSON, also in those that have floating point numbers only.
const MaxVersion = 1 << 52

// VersionLimit bounds them for now: what says more is damage, and is malformed wherever it is read or written. It is half of MaxVersion
// and as many more as there are milliseconds since 1970.
//
// Versions count these milliseconds too, or a little ahead of that, so no group gets there by itself. But whatever number is accepted,
// the next commit has to be above it, and has to be accepted by everybody: with a limit that stood still one number just below it,
// written from outside, would be the end of all commits. This one makes room for a thousand commits each second.
func VersionLimit() int64 { return MaxVersion/2 + max(0, time.Now().UnixMilli()) }

// ValidVersion reports whether v can be the version of a commit, or an epoch.
func ValidVersion(v int64) bool { return v > 0 && (v < MaxVersion/2 || v < VersionLimit()) }
