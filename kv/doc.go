// Package kv is the part of NATS that parti uses: two streams that open as KV buckets, and a handful of operations on
// them whose outcome is always one of four: done, conflict, refused, or unknown.
//
// Facts it rests on (each has a test here or in package natstest):
//
//   - Only a successful write guarded by a revision proves anything; every read may be stale, from any replica.
//   - A write that gets no answer may have landed. It is reported as types.ErrOutcomeUnknown and never retried here.
//   - The server announces an expiry by a marker with a revision of its own; a marker is an Entry with Op Expire.
//   - A bucket's age beats every per-message TTL, also that of markers. So values of the heartbeat bucket end by a TTL that each
//     write carries, and the bucket's age is the markers'. An agent that writes heartbeats on its own must do the same
//     (header Nats-TTL, e.g. "15s"); without it, its key ends with the bucket's age only.
//   - Every stored message of a two-token key is republished on the live subject with its revision in headers, so a plain
//     subscription sees every change and no watcher is needed. What a cut connection missed must be read again.
//   - A guard by a wildcard subject is unsafe on replicated streams; every guard here names one literal key.
//   - A listing that ended early looks like a short one. The server's count of what is pending, by which a KV watcher tells that it
//     has delivered all initial values, can be 0 too early while keys change; List waits for a proof, or returns an error.
//
// A Store holds no lock over a call and no goroutine of its own; it is safe for concurrent use.
package kv
