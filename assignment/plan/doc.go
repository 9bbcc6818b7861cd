// Package plan decides what the next commit says: which worker gets which partition, under which epoch, and which earlier
// holders have to release it first. It is pure: no clock, no store, no goroutine; the same input gives the same result.
//
// The work is split, because the strategy in the middle is foreign code:
//
//	p, err := plan.Prepare(in)             // sorts out what there is to decide
//	owners := strategy.Assign(p.Strategy)  // or Fallback(p.Strategy)
//	res, err := p.Next(owners)             // checks the answer and builds the commit
//
// # Rules
//
// They are those of makeCommit in the model of the handoff.
//
//   - An entry whose owner stays the same, ID and incarnation, stays as it is: epoch and `from` do not change. Only weight and
//     label follow the source.
//   - Any other owner gets a new entry. Its epoch is the new version, which is above every earlier one.
//   - The `from` of a new entry is the previous `from` without what is proved released, and the previous owner at the new
//     version: one item for each incarnation, with its highest version.
//   - A partition that nobody gets is parked: it keeps its `from`, and has no epoch.
//   - A partition that left the source is kept as retired until every holder in its `from` is proved released, so that one that
//     comes back does not start beside a holder that still runs it. Dropping it is no reason for a commit: it goes with the next.
//   - Where the store has lost commits, every entry is made new, and its `from` has every holder that was seen.
//
// Partitions of a worker that restarts within its grace stay with it. They are not put to the strategy, which sees live
// workers only.
package plan
