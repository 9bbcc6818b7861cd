package consumer

import (
	"fmt"
	"math"
)

// mostUnstored is how many messages of a partition may be acknowledged and not stored. Then nothing more of it is handed out, so that this is the
// most that comes again when the process dies, however long offsets cannot be stored. Ten times what makes a write due leaves writes their time.
func (c *config) mostUnstored() int {
	if c.commitMsgs > math.MaxInt/rarest {
		return math.MaxInt
	}
	return rarest * c.commitMsgs
}

// heldBack reports whether nothing is handed out until something is stored. Held: mu.
func (x *run) heldBack() bool { return x.pending >= x.r.cfg.mostUnstored() }

// tellHeldBack reports a partition that is held back and has stored nothing since the last look: a write that fails is reported by itself, a hook that
// does not return is not. It is the reading goroutine's.
func (x *run) tellHeldBack() {
	x.mu.Lock()
	held, saved := x.heldBack(), x.saved.Sequence
	x.mu.Unlock()
	switch {
	case held && x.stuck && x.stuckAt == saved:
		x.r.report(x.part, "held back", fmt.Errorf("consumer: partition %d: %d messages are acknowledged and no offset behind %d is stored: nothing more is "+
			"handed out until one is, see WithCommit; a write fails, or OnCommitted has not returned", x.part, x.r.cfg.mostUnstored(), saved))
	case x.stuck && !held:
		x.r.cured(x.part, "held back")
	}
	x.stuck, x.stuckAt = held, saved
}
