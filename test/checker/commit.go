package checker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (m *model) onCommit(e event) {
	before := m.commit
	if !e.read && e.last == 0 && before.rev != 0 {
		if before.state == stateValue {
			m.lose(e, "the commit key was purged")
		}
		before = slot{}
	}
	m.commit.set(e)
	m.guarded(e, 0)
	if e.op != opPut {
		m.lose(e, "the commit key was deleted or has expired")
		return
	}
	var c commit
	if err := json.Unmarshal(e.data, &c); err != nil {
		m.violate(CommitForm, e, 0, "%v: %.200s", err, e.data)
		return
	}
	if c.Version <= m.highest && m.restored(e, c) {
		return
	}
	if !contiguous(e, &before) && m.highest > 0 {
		before.rev = m.backfill(c.Version, before.rev)
	}
	m.judge(e, c, before)
	m.reconnect = false
}

// restored recognises an earlier commit that the test put back.
func (m *model) restored(e event, c commit) bool {
	k := m.known[c.Version]
	if k == nil || !m.c.lossAllowed() || !bytes.Equal(k.raw, e.data) {
		return false
	}
	m.lost = m.lost || c.Version < m.highest
	return true
}

// backfill judges the commits below version that were stored unheard, by their logs, and returns the revision of the last
// commit before version that is known now.
func (m *model) backfill(version int64, rev uint64) uint64 {
	logs, err := m.control.list(m.c.ctx, keyLog+"*")
	if err != nil {
		m.c.skip(fmt.Sprintf("commits before version %d: %v", version, err))
		return rev
	}
	for _, e := range logs {
		var c commit
		v, err := strconv.ParseInt(strings.TrimPrefix(e.key, keyLog), 10, 64)
		if err != nil || v <= m.highest || v >= version || e.op != opPut || json.Unmarshal(e.data, &c) != nil {
			continue
		}
		e.key, e.rev = keyCommit, e.rev-1
		m.judge(e, c, slot{state: stateValue, rev: rev})
		rev = e.rev
	}
	return rev
}

// judge applies every rule to a commit; before is the commit key before it.
func (m *model) judge(e event, c commit, before slot) {
	bad := func(rule Rule, format string, args ...any) { m.violate(rule, e, c.Version, format, args...) }
	if c.Schema != 1 || c.Version <= 0 || c.Nonce == "" || c.TermHolder.Worker == "" || c.TermHolder.Incarnation == "" ||
		c.LeaderRevision == 0 || c.PublishedAt.IsZero() || c.Lifecycle == "" {
		bad(CommitForm, "something is missing: %.300s", e.data)
	}
	if len(e.data) >= maxCommitSize {
		bad(CommitSize, "%d bytes", len(e.data))
	}
	if c.Version <= m.highest {
		bad(CommitOrder, "version %d was seen before", m.highest)
		return
	}
	if v, used := m.nonces[c.Nonce]; used {
		bad(CommitNonce, "version %d had the same nonce", v)
	}
	m.nonces[c.Nonce] = c.Version
	m.judgePrevious(e, c, before)
	m.judgeTerm(e, c)
	m.judgeLog(e, c)

	v := m.read(e, &c)
	reissue := m.lost || v != nil && m.c.lossAllowed() && v.allNew()
	if v != nil {
		m.judgeOwners(e, v)
		m.judgeStep(e, v, reissue)
	}
	m.accept(e, c, v, reissue)
}

func (m *model) judgePrevious(e event, c commit, before slot) {
	switch {
	case c.PreviousRevision == before.rev:
	case before.state == stateDeleted && c.PreviousRevision == 0:
	case m.late && m.highest == 0: // the first one seen
	case m.reconnect && c.PreviousRevision > before.rev:
		m.c.skip(fmt.Sprintf("the commits between revisions %d and %d", before.rev, e.rev))
	default:
		m.violate(CommitPrevious, e, c.Version, "previous_revision is %d, the commit before was at %d", c.PreviousRevision, before.rev)
	}
}

// judgeTerm needs the leader key as it was when the commit was stored: the last event of the same stream.
func (m *model) judgeTerm(e event, c commit) {
	bad := func(rule Rule, format string, args ...any) { m.violate(rule, e, c.Version, format, args...) }
	l := &m.leader
	if c.LeaderRevision < m.lastTerm {
		bad(TermOrder, "term %d after term %d", c.LeaderRevision, m.lastTerm)
	}
	if newTerm := c.LeaderRevision != m.lastTerm; newTerm && m.highest > 0 && c.Version < m.highest+65_536 {
		bad(TermFirstVersion, "the first of term %d, after version %d", c.LeaderRevision, m.highest)
	}
	m.lastTerm = max(m.lastTerm, c.LeaderRevision)
	if e.read && l.rev != e.rev-1 {
		return // what the key held then is gone
	}
	if l.state != stateValue {
		bad(TermEnded, "no leader key since revision %d", l.rev)
		return
	}
	if l.rev != e.rev-1 || !e.read && (e.batch == "" || l.batch != e.batch) {
		bad(TermRenewal, "the leader key was last written at revision %d, batch %q; the commit's batch is %q", l.rev, l.batch, e.batch)
	} else if l.value.CommitVersion != c.Version {
		bad(TermVersion, "the renewal names version %d", l.value.CommitVersion)
	}
	if l.value.holder() != c.TermHolder {
		bad(TermHolder, "made by %v, led by %v", c.TermHolder, l.value.holder())
	}
	switch {
	case l.term == 0:
		l.term = c.LeaderRevision // believed, and held against the next
	case l.term != c.LeaderRevision:
		bad(TermRevision, "made under term %d, the key was acquired at %d", c.LeaderRevision, l.term)
	}
}

func (m *model) judgeLog(e event, c commit) {
	got, err := m.fetch(keyLog+strconv.FormatInt(c.Version, 10), e.at)
	switch {
	case errors.Is(err, errNotFound):
		m.violate(CommitLog, e, c.Version, "%v", err)
	case err != nil:
		m.c.skip(fmt.Sprintf("the log of version %d: %v", c.Version, err))
	case !bytes.Equal(got.data, e.data):
		m.violate(CommitLog, e, c.Version, "it says %.300s", got.data)
	case !e.read && (got.batch != e.batch || got.batch == ""):
		m.violate(CommitLog, e, c.Version, "it was written in batch %q, the commit in batch %q", got.batch, e.batch)
	}
}

// collected is the age at which a value may have been collected before it was read.
const collected = 10 * time.Second

// fetch reads a key that something stored at that time refers to. errNotFound means that it should be there and is not.
func (m *model) fetch(key string, at time.Time) (event, error) {
	ctx, cancel := context.WithTimeout(m.c.ctx, 2*requestTimeout)
	defer cancel()
	for {
		e, err := m.control.get(ctx, key)
		if err == nil && e.op != opPut {
			err = fmt.Errorf("%w but a marker under %s", errNotFound, key)
		}
		if err == nil {
			return e, nil
		}
		if errors.Is(err, errNotFound) && time.Since(at) > collected {
			return event{}, fmt.Errorf("%s is %v old: %v", key, time.Since(at), err)
		}
		select {
		case <-ctx.Done():
			return event{}, err
		case <-time.After(50 * time.Millisecond): // an outage, or a replica that lags
		}
	}
}

// accept makes the commit the one that later ones are compared with.
func (m *model) accept(e event, c commit, v *view, reissue bool) {
	k := &knownCommit{raw: e.data, term: c.LeaderRevision, source: c.SourceRevision, view: v}
	if v != nil {
		k.digests = make(map[Holder]string, len(v.refs))
		for _, r := range v.refs {
			k.digests[r.holder()] = r.SetDigest
		}
		for id, p := range v.slots {
			m.epochs[id] = max(m.epochs[id], p.epoch)
		}
	}
	m.highest, m.lost = c.Version, false
	m.known[c.Version] = k
	if m.order = append(m.order, c.Version); len(m.order) > keepKnown {
		delete(m.known, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
	m.c.publish(m.describe(e, c, v, reissue), v, reissue)
	m.now = v
}
