package assignment

import (
	"time"

	"github.com/partigo/parti/internal/backoff"
)

const (
	firstLostPause = time.Second
	lastLostPause  = time.Minute
	// lostForgotten is after how long without a lost commit the next one is the first again.
	lostForgotten = 10 * time.Minute
)

// lostPause spaces out the commits that are made for no other reason than that the store seems to have lost one: each of them restarts
// every handler. The first is made at once. Whatever a heartbeat says, and however often, it brings about one a minute in the long run.
type lostPause struct {
	until time.Time
	last  time.Time
	wait  *backoff.Backoff
}

// reissued takes note of a commit that gave everything out anew.
func (p *lostPause) reissued(now time.Time) {
	if p.wait == nil || now.Sub(p.last) >= lostForgotten {
		p.wait = backoff.New(firstLostPause, lastLostPause)
	}
	p.last, p.until = now, now.Add(p.wait.Next())
}
