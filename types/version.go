package types

// MaxVersion bounds the versions of commits, and with them epochs: all lie below it. Versions count milliseconds since 1970, or a little
// ahead of that, so no group gets there; a value that says more is damage, and is malformed wherever it is read. Below it a version is
// exact in every reader of JSON, also in those that have floating point numbers only.
const MaxVersion = 1 << 52

// ValidVersion reports whether v can be the version of a commit, or an epoch.
func ValidVersion(v int64) bool { return v > 0 && v < MaxVersion }
