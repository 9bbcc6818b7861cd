// Package heartbeat keeps a worker's one key: the claim of its ID, its sign of life, and its acknowledgement of commits.
//
// The server has authority. A worker is whoever last wrote the key at the expected revision; whoever loses that race learns it
// from the server. Each claim begins a new incarnation. An incarnation ends when its lease runs out on the worker's own clock,
// when the key is found in other hands, or when the worker leaves; the process claims again only after everything that the
// ended incarnation ran has returned.
//
// [Lease] is the arithmetic, [Publisher] the loop. The loop's goroutine owns the key, its revision and the incarnation.
package heartbeat
