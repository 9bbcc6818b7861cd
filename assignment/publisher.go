package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

const (
	// Prefix is the first token of every key that this package writes.
	Prefix = "assignment"

	// DefaultKeepLog is how long a copy of each commit is kept: as long as the values it refers to are.
	DefaultKeepLog = DefaultPayloadGCRetention

	// DefaultParallelism bounds the store's operations under way at once for one publish or bootstrap.
	DefaultParallelism = 16

	// DefaultPublisherRequestTimeout bounds each single operation on the store.
	DefaultPublisherRequestTimeout = 2 * time.Second
)

var (
	// ErrPayloadHashCollisionOrCorruption: a value under a content address is not what the address says, and writing the right
	// value over it did not succeed either, or two contents have the same address.
	ErrPayloadHashCollisionOrCorruption = errors.New("assignment: value under a content address has other content")

	// ErrCommitUnreadable: the store has a commit but not all that it needs: the commit or something it refers to is missing or
	// damaged. Nobody can follow such a commit; see [AssignmentPublisher.StartFromScratch].
	ErrCommitUnreadable = errors.New("assignment: the stored commit cannot be read")

	// ErrNotBootstrapped: Publish needs to know which commit it replaces. Call Bootstrap.
	ErrNotBootstrapped = errors.New("assignment: publisher has not read the last commit")
)

// Committer applies writes in one atomic batch with a renewal of the leader's lease, so that they land only if the term
// still lasts. Package election's Elector is one.
//
// It returns the revisions of the writes, in order. Errors wrap types.ErrLeadershipLost (the term is over) or
// types.ErrCommitConflict (nothing was written), or types.ErrOutcomeUnknown where it could not be found out in time; then
// the committer finds it out before it writes anything else. With any other error nothing was written.
type Committer interface {
	Commit(ctx context.Context, term uint64, commitVersion int64, nonce string, writes []kv.Write) ([]uint64, error)
}

// PublisherConfig is what an [AssignmentPublisher] needs. Store, Committer, Holder and Term are required.
type PublisherConfig struct {
	// Store is the control bucket.
	Store     *kv.Store
	Committer Committer
	// Holder is the leader: this process in its present incarnation.
	Holder types.Holder
	// Term is the LeaderRevision under which this publisher commits. A publisher lives for one term.
	Term uint64
	// HighestVersion is the highest version that this process ever saw, in whichever role or incarnation.
	HighestVersion int64
	// KeepLog is how long the copy of each commit is kept, in whole seconds; 0 means [DefaultKeepLog].
	KeepLog time.Duration
	// Parallelism bounds the operations on the store under way at once; 0 means [DefaultParallelism].
	Parallelism int
	// RequestTimeout bounds each operation on the store; 0 means [DefaultPublisherRequestTimeout].
	RequestTimeout time.Duration
	Metrics        types.PublisherMetrics
	Logger         *slog.Logger
	// GCTrigger, where not nil, is called after each commit. It must return at once.
	GCTrigger func()
}

func (c *PublisherConfig) setDefaults() {
	if c.KeepLog == 0 {
		c.KeepLog = DefaultKeepLog
	}
	if c.Parallelism == 0 {
		c.Parallelism = DefaultParallelism
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultPublisherRequestTimeout
	}
	if c.Metrics == nil {
		c.Metrics = types.NopMetrics{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports everything that is wrong with the configuration, joined; each error wraps types.ErrInvalidConfig.
func (c *PublisherConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: publisher: "+format, append([]any{types.ErrInvalidConfig}, args...)...))
		}
	}
	check(c.Store != nil, "Store is nil: give the control bucket")
	check(c.Committer != nil, "Committer is nil: give the elector")
	check(types.ValidateWorkerID(c.Holder.Worker) == nil && c.Holder.Incarnation != "", "Holder %q is incomplete: give worker ID and incarnation", c.Holder)
	check(c.Term > 0, "Term is 0: give the revision at which the leader key was acquired")
	check(c.HighestVersion == 0 || types.ValidVersion(c.HighestVersion),
		"HighestVersion is %d: give the highest version seen, which is below %d, or 0", c.HighestVersion, types.VersionLimit())
	check(c.KeepLog == 0 || c.KeepLog >= time.Second, "KeepLog %v is under a second, the least that the server takes", c.KeepLog)
	check(c.Parallelism >= 0, "Parallelism %d is negative: give a small positive number, or 0 for %d", c.Parallelism, DefaultParallelism)
	check(c.RequestTimeout >= 0, "RequestTimeout %v is negative: give e.g. %v", c.RequestTimeout, DefaultPublisherRequestTimeout)
	return errors.Join(errs...)
}

// AssignmentPublisher makes the commits of one term: it stores what a commit refers to under content addresses, and then the
// commit itself in one atomic batch with the leader's lease (refs-always). That batch is the commit point; a crash anywhere
// before it leaves nothing but values that nobody refers to, which [CommitGC] collects.
//
// It builds on the commit that Bootstrap read, which may be stale: the batch is guarded by the revision of the commit key, so
// a wrong idea of it costs a types.ErrCommitConflict and another Bootstrap, never a lost commit.
//
// Bootstrap, StartFromScratch and Publish are the calculator's, from one goroutine at a time. Everything else may be called
// from any goroutine.
type AssignmentPublisher struct {
	cfg PublisherConfig

	// batch admits one user of the committer at a time, so that a deletion names the version that is current when it lands.
	batch chan struct{}

	mu sync.Mutex // guards what follows; never held over an operation on the store
	// last is the commit to build on; nil before Bootstrap.
	last *commitBase
	// unreadable is the revision of a commit that cannot be read and may be replaced by StartFromScratch; 0 where there is none.
	unreadable uint64
	// highest is the highest version seen or used by anybody.
	highest int64
	// begun: a version of this term has been used, so the next one follows it.
	begun bool
	// live are the keys that the publish under way refers to, registered before they are created. Like pending the map is
	// replaced as a whole and never changed.
	live map[string]struct{}
	// pending are the keys of publishes whose outcome is unknown, up to version pendingVersion.
	pending        map[string]struct{}
	pendingVersion int64
	rebalanced     time.Time
	// aliases has the keys of the aliases that the last commit of this term wrote; nil before there was one.
	aliases map[string]bool
	// sweepsDue counts the reasons to sweep the aliases, the beginning of the term being the first, and swept those that were dealt with.
	sweepsDue, swept int
	lost             error // why this term is over; nil while it lasts
}

// commitBase is a commit to build on, or the knowledge that there is none. It is immutable once published in the publisher.
type commitBase struct {
	revision uint64 // of the commit key: value, marker, or 0 for nothing
	commit   *types.AssignmentCommit
	state    *plan.State
	refs     map[string]types.AssignmentPayloadRef // by worker
	// keys are all values that the commit refers to, except for chunks: they are known to be stored.
	keys map[string]struct{}
	// proved: a guarded write of this publisher succeeded on it, so it was not a stale read.
	proved   bool
	observed time.Time
}

// NewAssignmentPublisher returns a publisher for one term. It does nothing before Bootstrap.
func NewAssignmentPublisher(cfg PublisherConfig) (*AssignmentPublisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	return &AssignmentPublisher{cfg: cfg, highest: cfg.HighestVersion, batch: make(chan struct{}, 1), sweepsDue: 1}, nil
}

// Store returns the control bucket.
func (p *AssignmentPublisher) Store() *kv.Store { return p.cfg.Store }

// LastCommit returns a deep copy of the commit that the publisher builds on: its own last one, or what Bootstrap read. nil
// means that there is none, or that it is not known yet.
func (p *AssignmentPublisher) LastCommit() *types.AssignmentCommit {
	b := p.base()
	if b == nil || b.commit == nil {
		return nil
	}
	c := *b.commit
	c.Refs, c.Shards = slices.Clone(c.Refs), slices.Clone(c.Shards)
	return &c
}

// LastCommitRev returns the revision of the commit key that the next commit replaces; 0 where nothing is stored.
func (p *AssignmentPublisher) LastCommitRev() uint64 {
	if b := p.base(); b != nil {
		return b.revision
	}
	return 0
}

// LastCommitObservedAt returns when this process made or first read the last commit, with a monotonic reading for
// time.Since: clocks of other leaders play no part. It is zero where there is no commit.
func (p *AssignmentPublisher) LastCommitObservedAt() time.Time {
	if b := p.base(); b != nil && b.commit != nil {
		return b.observed
	}
	return time.Time{}
}

// LastRebalanceTime returns when this publisher committed last; zero if it never did.
func (p *AssignmentPublisher) LastRebalanceTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rebalanced
}

// LiveRefs returns the keys that a publish under way, or one whose outcome is not known, refers to, sorted. They must not be
// collected.
func (p *AssignmentPublisher) LiveRefs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := make(map[string]struct{}, len(p.live)+len(p.pending))
	maps.Copy(keys, p.live)
	maps.Copy(keys, p.pending)
	return slices.Sorted(maps.Keys(keys))
}

func (p *AssignmentPublisher) base() *commitBase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// protected returns, in one step, the last commit and a test for keys that it or a publish under way refers to. Whatever the
// test denies was not referred to at that moment, and a later publish that needs it writes it first.
func (p *AssignmentPublisher) protected() (*commitBase, func(key string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, live, pending := p.last, p.live, p.pending // replaced as a whole, never changed
	return last, func(key string) bool {
		_, isLive := live[key]
		_, isPending := pending[key]
		inLast := false
		if last != nil {
			_, inLast = last.keys[key]
		}
		return isLive || isPending || inLast
	}
}

// register makes live references of everything that the draft refers to, its chunks included.
func (p *AssignmentPublisher) register(d *draft) {
	live := maps.Clone(d.keys)
	for _, b := range d.blobs {
		for _, c := range b.chunks {
			live[c.Key] = struct{}{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = live
}

// get reads the value under key; it is the publisher's record.Getter. The value may be stale.
func (p *AssignmentPublisher) get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	e, err := p.cfg.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if e.Absent() {
		return nil, fmt.Errorf("%w: %q was deleted", kv.ErrNotFound, key)
	}
	return e.Value, nil
}
