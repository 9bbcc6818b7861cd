// Package source says which partitions exist.
//
//   - [Static] is a list that never changes.
//   - [Func] asks a function of yours.
//   - [NewKV] is a live list in one key of a NATS KV bucket, which any process may change and all workers follow.
//
// All of them check what they return (types.ErrInvalidPartition, types.ErrDuplicatePartition), share no memory with the caller,
// and are safe for concurrent use. Their Validate method reports what can be known before anything runs.
//
// Only the leader of a group reads its source, but any worker may come to lead: give all of them an equal one.
package source
