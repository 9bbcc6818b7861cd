// Package checker judges, from outside, whether a group keeps the protocol. It is attached throughout integration tests and
// trusts nothing of the library: it imports none of it, decodes what is stored with structs and digests of its own, and
// believes revisions, batch IDs and times of the server only.
//
// # Checker
//
// [Attach] subscribes to the live subject of a namespace. The server republishes there every stored message of the leader key,
// the commit key and the heartbeats, with its revision, the revision it replaced, its batch and the revision that its writer
// expected; so no intermediate state is missed, and what a message followed is known, not guessed. What commits refer to is
// fetched as they come. After a reconnect the checker reads what it cannot have heard, commits from their logs.
//
// The rules are the constants of type [Rule]; each has a forged history in the tests that trips it. Rules on what was proved
// by heartbeats count only those stored up to the moment of the commit.
//
// # Oracle
//
// An [Oracle] is told by the test's handlers when runs begin and end. It finds two runs of one partition, epochs that do not
// grow, and how long partitions were run by nobody. Given to the checker ([WithOracle]), it exposes acknowledgements that
// are not true.
//
// # Concurrency
//
// One goroutine owns everything the checker knows; no lock is held over a wait. All goroutines end with Detach, and virtual
// time is fine.
package checker
