// Package types holds the values that travel between the parts of parti and over the wire, and the small
// interfaces that users implement.
//
// It imports the standard library only, so that a strategy, a source or a tool can be written against it without
// pulling in a NATS client. Values are plain data: no method blocks, and none has a side effect. Unless a type says
// otherwise, a value may be read by any number of goroutines as long as nobody writes to it.
package types
