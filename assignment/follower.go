package assignment

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// announced is how long a commit that the leader's renewal has announced may take to arrive before it is read. The two leave
// the server in one batch, the renewal first.
const announced = 50 * time.Millisecond

// Followed is what a commit says to this worker, verified.
type Followed struct {
	// Holder is the incarnation that the commit was looked up for. Another one may have begun meanwhile.
	Holder              types.Holder
	Version             int64
	LeaderRevision      uint64
	Lifecycle           string
	SourceRevision      uint64
	SourceRevisionKnown bool
	// Parked is the number of partitions of the source that nobody owns.
	Parked int
	// Digest is the set digest of Entries; empty where the commit does not list this incarnation.
	Digest string
	// Entries are sorted by partition ID; nil where the commit does not list this incarnation.
	Entries []types.AssignmentEntry
}

// FollowerConfig says what to follow and whom to tell. The callbacks run on the follower's goroutine and must not block.
type FollowerConfig struct {
	Store *kv.Store
	// Silence is how long the feed may be quiet before the store is read: half a leader lease.
	Silence        time.Duration
	RequestTimeout time.Duration
	// Apply is called with each verified commit that is newer than the one before for the present incarnation.
	Apply func(Followed)
	// Read is called with every entry of the two followed keys that was read rather than heard.
	Read func(kv.Entry)
	// Unread is called each time that the newest commit could not be read, with how often in a row and since when, and with a nil error when that
	// is over: the newest one was applied, or there is none.
	Unread func(err error, inARow int, since time.Time)
	// Doubt is called when the bucket may be gone, or another one than before: it does not answer, or shows less than was seen. It may be
	// called from any goroutine, and often. nil: nobody wants to know.
	Doubt func()
	// FeedBroken is called when a read shows what the live feed should have brought: it must be subscribed anew.
	FeedBroken func()

	Metrics types.ManagerMetrics
	Logger  *slog.Logger
}

const (
	// LeaderKey is the key whose live renewals announce the present commit.
	LeaderKey = "election.leader"
	// CommitKey is the key of the present commit.
	CommitKey = record.CommitKey
)

// Follower applies every commit to this worker: it takes the newest one that it hears of or reads, fetches what the commit
// refers to for this worker, verifies it, and hands it on. A commit that cannot be verified changes nothing and is tried
// again with backoff, unless a newer one comes.
//
// Its goroutine owns what was applied; the mailbox is filled by Observe, Begin and Reconnected from any goroutine.
type Follower struct {
	cfg     FollowerConfig
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	start   sync.Once
	wake    chan struct{}
	highest atomic.Int64
	unread  atomic.Bool // the newest commit could not be read

	mu   sync.Mutex // guards the mailbox
	mail mailbox

	// Owned by the loop.
	holder   types.Holder
	applied  int64
	shards   map[string][]byte // the values of the shard looked into last, by key
	payload  types.AssignmentPayloadRef
	entries  []types.AssignmentEntry // of payload
	verified bool                    // payload and entries are set
	setback  setback
	expected expectation
}

type mailbox struct {
	commit   *kv.Entry // the newest heard or read
	holder   types.Holder
	begun    bool      // holder is new
	read     bool      // the store must be read
	expect   int64     // version announced by the leader
	since    time.Time // when expect was announced
	heard    time.Time // when the feed last brought anything
	revision map[string]uint64
}

// NewFollower returns a follower that is not started.
func NewFollower(cfg FollowerConfig) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	return &Follower{
		cfg: cfg, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		shards: map[string][]byte{}, mail: mailbox{revision: map[string]uint64{}}, expected: expectation{patience: announced},
	}
}

// Start starts the loop. Further calls do nothing.
func (f *Follower) Start() { f.start.Do(func() { go f.run() }) }

// Stop ends the loop and waits for it. Further calls do nothing.
func (f *Follower) Stop() {
	f.cancel()
	f.start.Do(func() { close(f.done) })
	<-f.done
}

// Highest returns the highest version of a commit that this process has seen.
func (f *Follower) Highest() int64 { return f.highest.Load() }

// Unread reports whether the newest commit that this process knows of could not be read so far.
func (f *Follower) Unread() bool { return f.unread.Load() }

// Begin makes the follower apply the present commit for a new incarnation.
func (f *Follower) Begin(h types.Holder) {
	f.post(func(m *mailbox) { m.holder, m.begun, m.read = h, true, true })
}

// Reconnected makes the follower read what a cut connection may have missed.
func (f *Follower) Reconnected() { f.post(func(m *mailbox) { m.read = true }) }

// Observe takes an entry of the commit key or of the leader key that came over the live feed.
func (f *Follower) Observe(e kv.Entry, commitVersion int64) {
	back := false // revisions only go back in another bucket: live entries come in order
	f.post(func(m *mailbox) {
		m.heard = time.Now()
		back = e.Revision < m.revision[e.Key]
		m.revision[e.Key] = e.Revision
		switch e.Key {
		case record.CommitKey:
			m.commit = &e
		case LeaderKey:
			if commitVersion != m.expect { // the last word counts, not the highest: a wrong number goes with its value
				m.expect, m.since = commitVersion, m.heard
			}
		}
	})
	if back {
		f.doubt()
	}
}

func (f *Follower) doubt() {
	if f.cfg.Doubt != nil {
		f.cfg.Doubt()
	}
}

func (f *Follower) post(change func(*mailbox)) {
	f.mu.Lock()
	change(&f.mail)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Follower) run() {
	defer close(f.done)
	f.post(func(m *mailbox) { m.heard = time.Now() })
	retry := backoff.New(20*time.Millisecond, f.cfg.Silence)
	timer := time.NewTimer(f.cfg.Silence)
	defer timer.Stop()
	for {
		wait, err := f.step()
		if err != nil {
			wait = min(wait, retry.Next())
		} else {
			retry.Reset()
		}
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-f.wake:
		case <-timer.C:
		case <-f.ctx.Done():
			return
		}
	}
}

// step does what the mailbox asks for and returns how long nothing needs to be done. After an error, which is one of reading, the mailbox
// still asks.
func (f *Follower) step() (time.Duration, error) {
	f.mu.Lock()
	m := f.mail
	f.mail.begun = false
	f.mu.Unlock()
	if m.begun {
		f.holder, f.applied = m.holder, 0
	}
	asked := m.begun || m.read
	silent := time.Since(m.heard) >= f.cfg.Silence
	read := m.read || silent || f.expected.missing(m.expect, f.highest.Load(), m.since)
	if read {
		if err := f.read(); err != nil {
			return f.cfg.Silence, err
		}
		f.mu.Lock()
		m = f.mail
		f.mu.Unlock()
	}
	wait := f.cfg.Silence - time.Since(m.heard)
	if f.holder.Worker != "" && m.commit != nil {
		wait = min(wait, f.attempt(*m.commit, asked))
	}
	if m.expect > f.highest.Load() {
		wait = min(wait, f.expected.next(m.since, read, f.cfg.Silence))
	}
	return wait, nil
}

// read reads both keys. What is newer than what was heard shows that the feed is broken.
func (f *Follower) read() error {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.RequestTimeout)
	defer cancel()
	broken := false
	for _, key := range []string{LeaderKey, record.CommitKey} {
		f.mu.Lock()
		heard := f.mail.revision[key]
		f.mu.Unlock()
		e, err := f.cfg.Store.Get(ctx, key)
		if errors.Is(err, kv.ErrNotFound) {
			if heard > 0 {
				f.doubt() // not even a marker is left of it
			}
			continue
		}
		if err != nil {
			if errors.Is(err, kv.ErrUnavailable) {
				f.doubt()
			}
			return err
		}
		if e.Revision < heard {
			f.doubt() // or a replica that lags
		}
		f.cfg.Read(e)
		f.mu.Lock()
		broken = broken || heard > 0 && f.mail.revision[key] == heard && e.Revision > heard && time.Since(f.mail.heard) >= f.cfg.Silence
		if key == record.CommitKey && (f.mail.commit == nil || f.mail.commit.Revision != e.Revision) && f.newer(e) {
			f.mail.commit = &e
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	f.mail.read, f.mail.heard, f.mail.since = false, time.Now(), time.Now()
	f.mu.Unlock()
	if broken {
		f.cfg.Logger.Warn("the live feed is silent although the store changes; subscribing anew")
		f.cfg.FeedBroken()
	}
	return nil
}

// newer reports whether the commit read is not older than the one in the mailbox, by version: revisions restart with a
// recreated bucket, and a read can be stale. Held: mu.
func (f *Follower) newer(e kv.Entry) bool {
	if f.mail.commit == nil || f.mail.commit.Absent() {
		return true
	}
	have, err := record.DecodeCommit(f.mail.commit.Value)
	if err != nil {
		return true
	}
	read, err := record.DecodeCommit(e.Value)
	return err == nil && read.Version > have.Version
}

// follow verifies and applies the commit. With an error it says at which stage it failed.
func (f *Follower) follow(e kv.Entry) (stage string, version int64, err error) {
	commit, err := record.DecodeCommit(e.Value)
	if err != nil {
		return "commit", 0, err
	}
	f.highest.Store(max(f.highest.Load(), commit.Version))
	if commit.Version <= f.applied {
		return "", commit.Version, nil
	}
	followed := Followed{
		Holder: f.holder, Version: commit.Version, LeaderRevision: commit.LeaderRevision, Lifecycle: commit.Lifecycle,
		SourceRevision: commit.SourceRevision, SourceRevisionKnown: commit.SourceRevisionKnown, Parked: commit.ParkedCount,
	}
	ctx, cancel := context.WithTimeout(f.ctx, max(f.cfg.Silence, f.cfg.RequestTimeout)) // payloads can be large
	defer cancel()
	ref, found, err := record.FindRef(ctx, f.getShard, &commit, f.holder.Worker)
	if err != nil {
		return "index", commit.Version, err
	}
	if found && ref.Incarnation == f.holder.Incarnation {
		if err := f.fetch(ctx, ref); err != nil {
			return record.Stage(err), commit.Version, err
		}
		followed.Digest, followed.Entries = ref.SetDigest, f.entries
	}
	f.applied = commit.Version
	f.cfg.Apply(followed)
	return "", commit.Version, nil
}

// fetch makes f.entries what the reference says. An unchanged reference costs nothing.
func (f *Follower) fetch(ctx context.Context, ref types.AssignmentPayloadRef) error {
	if f.verified && f.payload.PayloadHash == ref.PayloadHash && f.payload.SetDigest == ref.SetDigest {
		return nil
	}
	payload, err := record.FetchAndVerifyCommitPayload(ctx, f.get, ref)
	if err != nil {
		return err
	}
	f.payload, f.entries, f.verified = ref, payload.Entries, true
	return nil
}

func (f *Follower) get(ctx context.Context, key string) ([]byte, error) {
	e, err := f.cfg.Store.Get(ctx, key)
	if err == nil && e.Absent() {
		return nil, kv.ErrNotFound
	}
	return e.Value, err
}

// getShard remembers the values fetched last: most commits leave most shards as they are.
func (f *Follower) getShard(ctx context.Context, key string) ([]byte, error) {
	if v, ok := f.shards[key]; ok {
		return v, nil
	}
	v, err := f.get(ctx, key)
	if err == nil {
		if len(f.shards) >= 8 {
			clear(f.shards)
		}
		f.shards[key] = v
	}
	return v, err
}
