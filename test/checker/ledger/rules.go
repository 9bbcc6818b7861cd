package ledger

import "fmt"

// Rule is what can be broken.
type Rule string

const (
	// Produced: the payloads in a stream do not count from 1. Nothing can be said of the partition then.
	Produced Rule = "produced"
	// Foreign: a message was handed out that is not stored under that sequence.
	Foreign Rule = "foreign"
	// Unclaimed: a run was handed a message and has never claimed the offset.
	Unclaimed Rule = "unclaimed"
	// Gap: a run begins or goes on after messages that it passed over.
	Gap Rule = "gap"
	// Repeat: a run begins before the offset that it claimed.
	Repeat Rule = "repeat"
	// Order: within a run, a message follows that was handed out before, and it is not the first one unacknowledged.
	Order Rule = "order"
	// TwoOwners: two readers were handed messages, or two workers have stored offsets, under one epoch.
	TwoOwners Rule = "two owners"
	// Fenced: an offset was stored under a lower epoch than one before.
	Fenced Rule = "fenced"
	// Back: an offset was stored that is lower than one before.
	Back Rule = "back"
	// Ahead: an offset was stored that covers messages which nobody had acknowledged.
	Ahead Rule = "ahead"
	// Zombie: an acknowledgement succeeded, and no offset at or beyond it was stored under its epoch.
	Zombie Rule = "zombie"
	// Missing: a stored message was never handed out.
	Missing Rule = "missing"
)

// Fault is one rule that was broken.
type Fault struct {
	Rule      Rule
	Partition int
	Text      string
}

func (f Fault) String() string {
	return fmt.Sprintf("%s: partition %d: %s", f.Rule, f.Partition, f.Text)
}
