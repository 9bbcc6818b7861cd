// Package election decides who leads a group, and lets the leader commit under its lead.
//
// # Model
//
// One key, `election.leader`, belongs to the leader. Every write of it is guarded by the revision that it replaces and lets
// the server end it after the lease. Acquiring it makes a term; the revision of that write is the term's number. A term ends
// when somebody else's write takes the key, when this process gives it up, or when its trust runs out.
//
// # Authority
//
// The server's verdict on a guarded write is the only proof of anything: reads may be stale, even from the stream's leader,
// and a write without an answer may have landed. So a leader trusts its term only until (moment before its last successful
// write was sent) + lease - margin, on its own monotonic clock. After that the term is over, whether or not a server can
// be reached. Wall clocks decide nothing.
//
// A commit is an atomic batch whose first write renews the leader key at the very revision this process knows, so a former
// leader's batch can never land, not even one that was under way when the lead was lost.
//
// # Failure
//
//   - No answer to a write: the key is read back. An own nonce at a newer revision tells which write landed; otherwise a
//     renewal at the old revision decides, since its success proves that no earlier write at that revision can land.
//     Nothing else is written before that.
//   - A conflict: never taken for a demotion until a newer revision with somebody else's value, or a marker, was seen.
//   - The leader crashes: the server announces the expiry, and candidates acquire over the marker within some 50 ms.
//   - The announcement is missed: every candidate's own timer makes it look after lease + 0.4 s, and Config.OnSilence asks for
//     the subscription to be mended.
//   - The key holds something that nobody renews (a value that is no leader's, a value without a TTL): it is replaced at
//     its revision when it has not changed for the lease and a second. A value that claims more than six of the reader's leases is given six:
//     so where the setting differs by more than that, a leader that does not renew in time may be replaced while it still trusts its
//     term. Their commits exclude each other.
//   - The bucket is recreated: revisions start again. Once that is known (Reset, or a look at the stream), old ones are forgotten
//     and a running term ends. Until then two terms may be trusted, for a lease at most; their commits exclude each other.
//   - An operator deletes the key: candidates cannot tell it from a release, so a new term may begin some milliseconds before the
//     old leader has noticed. Its commits are refused from the moment of the deletion.
//
// # Ownership of state
//
// One goroutine per Elector owns key, revision and term, and makes one call to the server at a time.
package election
