// Package strategy decides which worker gets which partition.
//
// A strategy is a pure function of the workers, the partitions and the owners of the last commit. It does no I/O, keeps
// no state between calls, and gives the same answer in every process, so that it does not matter who leads. Which workers
// a partition may go to at all (labels) is settled before a strategy is asked.
//
// What the ones in this package trade, for n partitions on m workers:
//
//	strategy                needs Previous  balance                        moved when one worker joins
//	Sticky (the default)    yes             spread ≤ 1; by weight ≤ 1.05   the minimum, about n/m
//	ConsistentHash          no              ≤ load factor (1.1) × mean     1.2 to 1.4 × n/m
//	WeightedConsistentHash  no              the same by weight             1.4 to 1.7 × n/m
//	RoundRobin              no              spread ≤ 1                     nearly all
//
// Sticky is right unless there is a reason: a commit always carries the owners of the one before, so it loses nothing by a
// change of leader. The hashing ones are for owners that must be computable by somebody who has only the two lists.
//
// A partition costs its [types.Partition.Cost]. Anyone can write a strategy of their own; package strategytest has the
// checks for it. One that fails harms nobody: the leader keeps the last good assignment.
package strategy
