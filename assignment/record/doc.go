// Package record is the wire format of a commit, for both sides: what the leader stores and what a follower accepts.
//
// # Values
//
// A commit is one small value under [CommitKey]. Everything large lies beside it in content-addressed blobs under
// [PayloadKey], named by the sha256 of their uncompressed bytes:
//
//	commit   who made it and when, the batch digest, and the worker references: inline, or as a list of shards
//	shard    at most [MaxShardRefs] worker references, sorted by worker ID
//	payload  what one worker owns: entries sorted by partition ID
//	parked   what nobody owns: entries sorted by partition ID
//
// Blobs are gzipped; over 512 KiB they lie in chunks under [ChunkKey] behind a manifest (see internal/blob). A blob holds
// only what stays the same as long as what it describes does, so an unchanged slice keeps its address across commits, and one
// changed slice costs one payload, one shard and the commit.
//
// # Canonical form
//
// Blobs have exactly one encoding: fixed order of fields, sorted entries, no white space, zero values left out, and in strings
// nothing escaped but the quote, the backslash and control characters. So any leader makes the same bytes of the same slice,
// in any release of this major schema. A payload keeps its `from` lists in a table, since many entries share one:
//
//	{"schema":1,"from_lists":[[{"worker":"w","incarnation":"i","version":7}]],
//	 "entries":[{"keys":["eu","17"],"weight":5,"label":"x","epoch":9,"from":0}]}
//
// Here "from" is an index into the table, which lists each different list once, in the order of its first use. Read
// and write payloads through this package only: the JSON of package types is another, plainer form.
//
// # What is verified
//
// A reader recomputes the sha256 of a blob, checks every invariant of its format and compares the digest: [SetDigest] covers
// which partitions a payload holds under which epochs, [BatchDigest] covers all references of a commit and its parked list.
// Digests are taken over values, not over bytes: fields that a reader does not know are ignored and lie outside. Each stage
// of a failure has a sentinel, see [Stage]. A higher major schema is types.ErrUnsupportedSchema, anything else that
// cannot be right is types.ErrMalformed; no input makes a decoder panic or take memory out of proportion.
package record
