// Package fence makes sinks refuse what owners write whose time is over.
//
// A worker that is frozen (SIGSTOP, a paused VM, a long stop of the machine's disk) cannot be told that its partition runs elsewhere by
// now. When it thaws it goes on where it was, perhaps just before a write. No lease and no lock service can prevent that write from being
// sent: only the sink can refuse it. For that, every run of a partition has a number that grows with each change of owner, for ever:
// types.Ownership.Epoch, its fencing token. The sink keeps the highest epoch it has seen beside the data, and refuses lower ones in
// the same atomic step in which it writes.
//
//   - [KV] is a NATS KV bucket as such a sink.
//   - [SQL] fences the transactions of an SQLite or PostgreSQL database.
//   - [Guard] is the check alone, in memory, for a sink that is a program of your own.
//
// # What it protects
//
// Once a sink has seen an epoch, no write under a lower one changes it any more, whenever it arrives and whatever its sender believes.
// Equal epochs are let through: they belong to one run of one partition.
//
// # What it does not protect
//
//   - What the newer owner has not touched yet. A late write that arrives before the first one under the newer epoch is still accepted,
//     as it would have been a moment earlier. So begin a run by raising the epoch, and read only then: [KV.Claim], or [SQL.Advance] in a
//     transaction of its own.
//   - What is not covered by the epoch that was raised. KV fences each key by itself; a run that writes several keys claims each of them.
//     SQL and Guard fence a partition as a whole.
//   - Writers that bypass the fence: a plain put, another program, an operator.
//   - Two writes of one run that overtake each other: they have the same epoch.
//   - Sinks that cannot compare and write in one step, such as an e-mail or a payment service. Give those the epoch as part of an
//     idempotency key, or put a fenced step before them.
package fence
