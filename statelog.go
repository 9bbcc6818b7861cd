package parti

import (
	"log/slog"

	"github.com/partigo/parti/types"
)

// stateLog writes one line for what an operator takes for one event. States that only pass by, and that another line tells of, are at level
// Debug: waiting, after a first claim that is logged, and rebalancing, which ends with a line of the calculator about what it did. The line
// that follows goes on from the state that was shown last. It is called by one goroutine at a time.
type stateLog struct {
	log   *slog.Logger
	shown types.State
}

func (l *stateLog) write(c StateChange) {
	passing := c.To == types.StateRebalancing || c.To == types.StateWaiting && c.From == types.StateJoining
	if passing || c.To == l.shown {
		l.log.Debug("state", "from", c.From, "to", c.To, "reason", c.Reason)
		return
	}
	l.log.Info("state", "from", l.shown, "to", c.To, "reason", c.Reason)
	l.shown = c.To
}
