package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

const (
	// DefaultPayloadGCInterval is how often a CommitGC looks when nothing triggers it.
	DefaultPayloadGCInterval = 5 * time.Minute

	// DefaultPayloadGCRetention is how long a value is kept after it was written although nothing refers to it, so that one can
	// still see what an earlier commit gave.
	DefaultPayloadGCRetention = 24 * time.Hour

	// DefaultPayloadGCKeepCommits is how many of the latest commit logs keep what they refer to.
	DefaultPayloadGCKeepCommits = 10

	// DefaultPayloadGCMaxGarbage is how many values that nothing refers to may wait for the end of their retention.
	DefaultPayloadGCMaxGarbage = 10_000

	// gcPacing is the part of the interval that lies between the beginnings of two passes at least, however often triggered.
	gcPacing = 10
)

// CommitGCConfig is what a [CommitGC] needs. Publisher is required.
type CommitGCConfig struct {
	// Publisher is that of the present term; the collector deletes through it.
	Publisher *AssignmentPublisher
	// Interval is the longest time between two passes; 0 means [DefaultPayloadGCInterval]. Triggered passes are a tenth of it
	// apart, so that a busy group is not listed after each commit.
	Interval time.Duration
	// Retention is how long a value is kept although nothing refers to it, on the server's clock; 0 means
	// [DefaultPayloadGCRetention].
	Retention time.Duration
	// KeepCommits is how many of the latest commits stay readable, as long as the store has their logs: for PublisherConfig.KeepLog. 0 means
	// [DefaultPayloadGCKeepCommits].
	KeepCommits int
	// MaxGarbage bounds the values that wait for the end of their retention; of more, the oldest are deleted before. 0 means
	// [DefaultPayloadGCMaxGarbage].
	MaxGarbage int
	// Applied, where not nil, returns the versions that live workers have applied: what these commits refer to is kept, as long as the store has
	// their logs.
	Applied func() []int64
	// Metrics and Logger are the publisher's where nil.
	Metrics types.PublisherMetrics
	Logger  *slog.Logger
}

// Validate reports everything that is wrong with the configuration, joined; each error wraps types.ErrInvalidConfig.
func (c *CommitGCConfig) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: gc: "+format, append([]any{types.ErrInvalidConfig}, args...)...))
		}
	}
	check(c.Publisher != nil, "Publisher is nil: give that of the present term")
	check(c.Interval >= 0, "Interval %v is negative: give e.g. %v", c.Interval, DefaultPayloadGCInterval)
	check(c.Retention >= 0, "Retention %v is negative: give e.g. %v", c.Retention, DefaultPayloadGCRetention)
	check(c.KeepCommits >= 0, "KeepCommits %d is negative: give e.g. %d", c.KeepCommits, DefaultPayloadGCKeepCommits)
	check(c.MaxGarbage >= 0, "MaxGarbage %d is negative: give e.g. %d", c.MaxGarbage, DefaultPayloadGCMaxGarbage)
	return errors.Join(errs...)
}

func (c *CommitGCConfig) setDefaults() {
	if c.Interval == 0 {
		c.Interval = DefaultPayloadGCInterval
	}
	if c.Retention == 0 {
		c.Retention = DefaultPayloadGCRetention
	}
	if c.KeepCommits == 0 {
		c.KeepCommits = DefaultPayloadGCKeepCommits
	}
	if c.MaxGarbage == 0 {
		c.MaxGarbage = DefaultPayloadGCMaxGarbage
	}
	if c.Applied == nil {
		c.Applied = func() []int64 { return nil }
	}
	if c.Metrics == nil {
		c.Metrics = c.Publisher.cfg.Metrics
	}
	if c.Logger == nil {
		c.Logger = c.Publisher.cfg.Logger
	}
}

// CommitGC deletes what no commit needs any more: payloads, shards, parked lists and chunks that nothing refers to and whose
// retention is over, and commit logs beyond those that are kept. It keeps what these refer to: the last commit, the logs of
// the latest KeepCommits versions and of those that live workers have applied, as long as these logs are there, and publishes under way.
//
// Only the present leader deletes, since every deletion is part of a batch that renews its lease; and only once this term has
// made a commit, because until then its idea of the last commit may be a stale read. A term that commits nothing makes no
// garbage either.
//
// Where something that the last commit refers to is missing, a pass deletes nothing and stores it again.
//
// A deletion is guarded by the revision that the key had in a complete listing, so it loses against any write since. It is never
// needed for correctness: a failed pass is logged, and the next one does its work.
type CommitGC struct {
	cfg CommitGCConfig

	wake chan struct{} // holds one trigger: a pass that begins after it was taken sees everything before it
	quit context.Context
	stop context.CancelFunc
	done chan struct{}
	once sync.Once // start, or stop before start

	pass chan struct{} // held by the pass under way

	// Owned by the pass under way.
	logs   map[uint64]map[string]struct{} // what the commit of a log refers to, by the log's revision
	chunks map[uint64][]string            // what chunks a root names, by the root's revision
}

// NewCommitGC returns a collector that has not started.
func NewCommitGC(cfg CommitGCConfig) (*CommitGC, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	g := &CommitGC{
		cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), pass: make(chan struct{}, 1),
	}
	g.quit, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// Start begins to collect in the background; it returns at once. A collector lives once: a second Start, and one after Stop, return
// types.ErrAlreadyStarted.
func (g *CommitGC) Start() error {
	err := types.ErrAlreadyStarted
	g.once.Do(func() {
		err = nil
		go g.run()
	})
	return err
}

// Stop ends the pass under way, if there is one, and returns when nothing runs any more. It may be called more than once.
func (g *CommitGC) Stop() {
	g.stop()
	g.once.Do(func() { close(g.done) }) // never started
	<-g.done
}

// Trigger asks for a pass soon; it returns at once. Triggers share a pass, and one that comes during a pass leads to another.
// Before Start it is remembered.
func (g *CommitGC) Trigger() { poke(g.wake) }

func (g *CommitGC) run() {
	defer close(g.done)
	for {
		begun := time.Now()
		if _, err := g.RunOnce(g.quit); err != nil && g.quit.Err() == nil {
			g.cfg.Logger.Warn("garbage collection did not finish", "error", err)
		}
		if g.quit.Err() != nil {
			return
		}
		if backoff.Sleep(g.quit, time.Until(begun.Add(g.cfg.Interval/gcPacing))) != nil {
			return
		}
		rest := time.NewTimer(time.Until(begun.Add(g.cfg.Interval)))
		select {
		case <-g.wake:
		case <-rest.C:
		case <-g.quit.Done():
		}
		rest.Stop()
	}
}
