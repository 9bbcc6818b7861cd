package parti

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/partigo/parti/assignment"
	"github.com/partigo/parti/election"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

// candidacy is what decides whether this process contends for the lead.
type candidacy struct {
	mu      sync.Mutex // guards everything below; the elector is told under it, so that it is told in order
	holder  types.Holder
	resting bool // has stepped down lately
	// barred: the newest commit is a newer release's, on which this one cannot build. It is over when another commit comes.
	barred  bool
	commits uint64 // how often another commit came

	// may and told are what the elector was told last.
	may  bool
	told types.Holder
}

// stand changes the candidacy and tells the elector.
func (m *Manager) stand(change func(*candidacy)) {
	c := &m.candidacy
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
	may := m.set.Role.MayLead() && c.holder != (types.Holder{}) && !c.resting && !c.barred
	if may != c.may || c.holder != c.told {
		c.may, c.told = may, c.holder
		m.parts.elector.SetCandidate(c.holder, may)
	}
}

func (c *candidacy) begin(h types.Holder) { c.holder, c.resting = h, false }

// freed takes note of another commit than the one that barred.
func (c *candidacy) freed() { c.barred, c.commits = false, c.commits+1 }

func (m *Manager) commitsSeen() uint64 {
	m.candidacy.mu.Lock()
	defer m.candidacy.mu.Unlock()
	return m.candidacy.commits
}

// stepDown gives the lead to somebody else, and contends again only after a lease; where it was given up because of a newer release's
// commit, only when there is another commit. commits is what was known when the term began.
func (m *Manager) stepDown(t election.Term, cause error, commits uint64) {
	m.stand(func(c *candidacy) {
		if c.holder == t.Holder {
			c.resting = true
			c.barred = c.barred || errors.Is(cause, types.ErrUnsupportedSchema) && c.commits == commits
		}
	})
	if backoff.Sleep(m.ctx, m.set.LeaderLease) != nil {
		return
	}
	m.stand(func(c *candidacy) {
		if c.holder == t.Holder {
			c.resting = false
		}
	})
}

const (
	// sourcePatience is for how long the source of a leader may fail before another one is to try its own. It doubles with every term that ended
	// so, mostPatience times at most: where nobody's source answers, the lead goes round ever more slowly.
	sourcePatience = 30 * time.Second
	mostPatience   = 5
	// heldPatience is for how many HeartbeatTTLs a leader may have troubles again and again, and act on nothing because of them, before another one is
	// to lead, which may have none. It doubles in the same way: where the store itself is troubled, the lead goes round ever more slowly.
	heldPatience = 4
)

// sourced takes note of the outcome of a leader's look at the source: failed in a row, since when. It returns an error when the lead is to be
// given up, because the source may fail here only: then new partitions would never be assigned. It stays where nobody else could lead.
func (m *Manager) sourced(err error, failed int, since time.Time) error {
	l := &m.lead
	if err == nil {
		l.sourceless = 0
		return nil
	}
	stalled := time.Since(since)
	if failed < stalledListings || stalled < sourcePatience<<min(l.sourceless, mostPatience) {
		return nil
	}
	if !m.somebodyMayFollow() {
		return nil
	}
	l.sourceless++
	return fmt.Errorf("the source has not answered for %v: %w", stalled.Round(time.Second), err)
}

// holds takes note of what a leader does not act on, in a term, because of troubles with the store. It returns an error when the lead is to be given
// up, because the troubles may be those of this process's link only: they would hold deaths and changes of the source for ever.
func (m *Manager) holds(term uint64, h assignment.Hold) error {
	l, lasted := &m.lead, h.Last.Sub(h.Since)
	if h.Since.IsZero() {
		l.troubled = 0
	}
	if !h.Any() || lasted < heldPatience/2*m.set.HeartbeatTTL {
		m.health.recover(causeHold)
		return nil
	}
	said := fmt.Sprintf("troubles with the store, again and again for %v, hold %v", lasted.Round(time.Second), h)
	m.health.degradeLeader(term, causeHold, "the leader cannot act: "+said)
	if lasted <= heldPatience*m.set.HeartbeatTTL<<min(l.troubled, mostPatience) {
		return nil
	}
	if !m.somebodyMayFollow() {
		return nil
	}
	if l.troubledIn != term {
		l.troubled, l.troubledIn = l.troubled+1, term
	}
	return errors.New(said)
}

// somebodyMayFollow reports whether this leader sees another worker that may lead.
func (m *Manager) somebodyMayFollow() bool {
	calc := m.lead.calculator()
	return calc != nil && mayFollow(calc.Monitor().Workers(), m.WorkerID(), m.set.HeartbeatTTL)
}

// mayFollow reports whether a worker other than self is there, heard of within ttl, that may lead.
func mayFollow(v assignment.View, self string, ttl time.Duration) bool {
	for _, w := range v.Members {
		leaving := time.Since(w.Seen) > ttl || w.State.Gone() || w.State == types.WorkerDraining
		if !w.Plain() && !w.Unreadable && !leaving && w.Role.MayLead() && w.WorkerID != self {
			return true
		}
	}
	return false
}

// repeatStuck is how soon it is said again that the newest commit cannot be read, and a leader reads it again: later than it takes one to give
// up a commit that is damaged and replace it, which reading again would hold up.
const repeatStuck = time.Minute

// unread takes note of the newest commit that could not be read, so often in a row and since when; nil: that is over. It runs on the
// follower's goroutine.
func (m *Manager) unread(err error, inARow int, since time.Time) {
	switch {
	case err == nil:
		m.stuck = time.Time{}
		m.health.recover(causeCommit)
		m.stand((*candidacy).freed)
		return
	case errors.Is(err, types.ErrUnsupportedSchema):
		m.lead.stepping(m, err)
		m.stand(func(c *candidacy) { c.barred = true })
	case errors.Is(err, types.ErrMalformed): // whoever leads replaces it
		m.stand((*candidacy).freed)
	}
	if inARow < 2 || time.Since(since) < m.set.HeartbeatTTL/4 {
		return
	}
	m.health.degrade(causeCommit, fmt.Sprintf("the newest commit cannot be read: %v", err))
	if !m.stuck.IsZero() && time.Since(m.stuck) < repeatStuck {
		return
	}
	m.stuck = time.Now()
	m.fail(fmt.Errorf("parti: the newest commit cannot be read: %w", err))
	if calc := m.lead.calculator(); calc != nil {
		calc.Reread()
	}
}
