// Package rig is what the programs in test/bench share: a server with file storage in the same process, a group of workers with one
// TCP connection each that can be cut for good, a ledger that the handlers write, and one way to repeat a measurement and print
// its figures.
//
// Figures come from outside the library wherever possible: from handlers, from the bytes and messages of the connections, from
// the operating system.
package rig
