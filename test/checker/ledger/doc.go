// Package ledger judges, from outside, whether a group of readers reads in strict order. Like the rest of the checker it imports nothing of the library.
//
// The payloads of each partition count from 1. Readers tell the [Ledger] what they were handed, what they acknowledge, and what came of it. What
// else happened is read from the server when all is over ([Read]): the streams, and every offset that was ever stored, in the order
// in which the server stored them ([KeepOffsets] makes a bucket that forgets none). So no rule depends on a clock, or on the order in which
// different processes were heard.
//
// The rules are the constants of type [Rule]; each has a forged record in the tests that trips it. Together they say: a run, which is one ownership of
// a partition, begins right behind the offset that it claimed, and goes on without a gap; so a message is repeated if, and only if, no offset at or
// beyond it was stored before the take-over. An offset covers nothing that was not acknowledged. And an acknowledgement that
// succeeded was stored under its own epoch, before any later owner's claim.
//
// A handler may be handed the same again within its run: what it has not acknowledged, from the first such message on.
package ledger
