package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
)

// Option changes a setting of a Reader. The last one wins.
type Option func(*config)

// DefaultOffsetsBucket is the KV bucket in which all groups of an account keep their offsets.
const DefaultOffsetsBucket = "parti-offsets"

const (
	// requestTimeout bounds one request to the server.
	requestTimeout = 2 * time.Second
	// inactive is how long the server keeps a consumer that nobody asks any more: of a Reader that has crashed.
	inactive = time.Minute
)

type config struct {
	resolver Resolver
	layout   *Layout // where the resolver is one's
	strategy types.AssignmentStrategy
	lagAware *LagAware
	manager  []parti.Option

	offsets         string
	offsetsReplicas int
	offsetsStorage  jetstream.StorageType

	start       Position
	bufferMsgs  int
	bufferBytes int
	totalMsgs   int
	totalBytes  int
	fetchWait   time.Duration
	fetchBatch  time.Duration
	commitEvery time.Duration
	commitMsgs  int
	concurrency int
	retry       Retry
	poison      PoisonAction
	deadLetter  string
	expired     ExpiredPolicy
	recreated   RecreatedPolicy
	sharedAbove int
	hooks       Hooks
	metrics     Metrics
	log         *slog.Logger
}

func defaultConfig() config {
	return config{
		strategy: strategy.Sticky(),
		offsets:  DefaultOffsetsBucket, offsetsReplicas: 1, offsetsStorage: jetstream.FileStorage,
		// Reading flat out needs about two pulls of 250 under way to keep the server busy; 1,000 idle partitions share the total.
		bufferMsgs: 500, bufferBytes: 8 << 20, totalMsgs: 50_000, totalBytes: 128 << 20,
		fetchWait: 5 * time.Second, fetchBatch: 10 * time.Millisecond,
		commitEvery: 100 * time.Millisecond, commitMsgs: 100,
		retry:  Retry{Attempts: 5}.withDefaults(),
		poison: PoisonStop, sharedAbove: MaxPerStream,
		metrics: NopMetrics{}, log: slog.New(slog.DiscardHandler),
	}
}

// Resolver says in which stream and under which subject (or subject filter, with wildcards) a partition's messages are stored. It must
// give the same answer in every process of the group and for ever, or the partitions' offsets lose their meaning. Subjects of different partitions of one
// stream must not overlap; NewReader refuses those that do.
type Resolver func(partition int) (stream, subject string)

// WithResolver sets where partitions are stored. It or [WithLayout] is required.
func WithResolver(r Resolver) Option { return func(c *config) { c.resolver, c.layout = r, nil } }

// WithLayout sets where partitions are stored by one of the ready-made layouts, which must have as many partitions as the Reader.
func WithLayout(l Layout) Option { return func(c *config) { c.resolver, c.layout = l.Resolve, &l } }

// WithStrategy sets who gets what. Default strategy.Sticky().
func WithStrategy(s types.AssignmentStrategy) Option { return func(c *config) { c.strategy = s } }

// WithLagAware makes the placement follow the lag of the partitions, see [LagAware]. Every reader of the group must use it.
func WithLagAware(l LagAware) Option { return func(c *config) { c.lagAware = &l } }

// WithManagerOptions passes options to the parti.Manager that the Reader runs on: worker ID, heartbeat, windows, hooks of the group,
// metrics, storage of its buckets. Namespace and handler are the Reader's own.
func WithManagerOptions(opts ...parti.Option) Option {
	return func(c *config) { c.manager = append(c.manager, opts...) }
}

// WithOffsets sets the bucket for offsets and how it is made where it is missing. Default [DefaultOffsetsBucket], 1 replica,
// file storage; use 3 replicas in a cluster.
func WithOffsets(bucket string, replicas int, storage jetstream.StorageType) Option {
	return func(c *config) { c.offsets, c.offsetsReplicas, c.offsetsStorage = bucket, replicas, storage }
}

// WithStart sets where a partition begins that has no offset yet. Default [Earliest]; any other is stored as its offset before anything of the partition
// is handed out.
func WithStart(p Position) Option { return func(c *config) { c.start = p } }

// WithBuffer bounds what is held in memory for one partition and has not been handed out. At least one message is always
// read, whatever its size. Default 500 messages, 8 MiB.
func WithBuffer(messages, bytes int) Option {
	return func(c *config) { c.bufferMsgs, c.bufferBytes = messages, bytes }
}

// WithTotalBuffer bounds what is held in memory for all partitions of the Reader, in equal shares. Default 50,000 messages, 128 MiB. A partition
// may exceed its share of the bytes, here and in [WithBuffer], by what one request brings: how many messages fit is estimated by those before,
// and the first request is for 20, of at most as many bytes together as the stream, or else the server, permits one message.
func WithTotalBuffer(messages, bytes int) Option {
	return func(c *config) { c.totalMsgs, c.totalBytes = messages, bytes }
}

// WithFetchWait sets how long Fetch waits for a first message, and how long it then waits for more until it has as many as were
// asked for. Default 5 s and 10 ms.
func WithFetchWait(first, more time.Duration) Option {
	return func(c *config) { c.fetchWait, c.fetchBatch = first, more }
}

// WithCommit bounds how long an acknowledgement of Process, All or AckLater stays uncommitted, in time and in messages of its
// partition. Default 100 ms and 100. The time holds where up to 20 partitions of the Reader have something to be stored; with more it grows in
// proportion, up to ten times as long. So by default a Reader writes up to 200 offsets per second because of it, and beyond 200 partitions one
// of each per second.
//
// A write takes its time, and may fail. While ten times that many messages of a partition are acknowledged and not stored, nothing more of it is handed
// out, see [PartitionStats]; it goes on as soon as some are stored. So that many, the message in hand included, are the most that comes again of a
// partition after a crash; with Fetch, fewer than that and what it returned last.
func WithCommit(delay time.Duration, messages int) Option {
	return func(c *config) { c.commitEvery, c.commitMsgs = delay, messages }
}

// WithConcurrency bounds how many handlers Process runs at a time. Default 0: one for each owned partition, so that a handler that
// hangs holds back nothing but its partition.
func WithConcurrency(n int) Option { return func(c *config) { c.concurrency = n } }

// Retry says how Process repeats a message whose handler failed, in place: nothing of the partition overtakes it.
type Retry struct {
	// Attempts is how often a message is tried before the poison policy applies. 0: for ever.
	Attempts int
	// First and Limit are the wait after the first attempt and the longest one; it doubles in between. Each is shortened by up to a half, by
	// chance: partitions that fail together do not come back together. 0: 100 ms and 10 s, or as far from it as the other one requires.
	First, Limit time.Duration
}

// WithRetry sets how Process repeats. Default 5 attempts, 100 ms to 10 s.
func WithRetry(r Retry) Option { return func(c *config) { c.retry = r.withDefaults() } }

// withDefaults replaces waits that were left out.
func (r Retry) withDefaults() Retry {
	const first, limit = 100 * time.Millisecond, 10 * time.Second
	if r.First == 0 {
		r.First = first
		if r.Limit > 0 {
			r.First = min(first, r.Limit)
		}
	}
	r.Limit = cmp.Or(r.Limit, max(limit, r.First))
	return r
}

// PoisonAction is what Process does with a message that could not be processed.
type PoisonAction uint8

const (
	// PoisonStop, the default, stops the partition: nothing more of it is handed out, here or, after a move, before the same message has
	// been tried again. Other partitions go on.
	PoisonStop PoisonAction = iota
	// PoisonSkip acknowledges the message and goes on.
	PoisonSkip
	// PoisonDeadLetter publishes the message to the dead-letter subject, and goes on when a stream has stored it there.
	PoisonDeadLetter
)

var poisonNames = [...]string{"stop", "skip", "dead-letter"}

// String returns the action's name in lower case.
func (a PoisonAction) String() string {
	if int(a) >= len(poisonNames) {
		return "unknown"
	}
	return poisonNames[a]
}

// WithPoison sets what happens to a message that could not be processed: [PoisonStop] or [PoisonSkip].
func WithPoison(a PoisonAction) Option { return func(c *config) { c.poison = a } }

// WithDeadLetter publishes messages that could not be processed to a subject, which some stream must store: one that the group does not read. NewReader
// refuses a subject that a stream of the layout takes, and a dead letter that the group is handed all the same stops its partition when it fails again, as
// by [PoisonStop]. One that was published again to the subject it came from is a message like any other. The message keeps its data and headers, and gets the Header… headers of this package. It is published at least once; the server drops duplicates within the
// duplicate window of the stream, by the message ID. One that is too large for the server with these headers, some 300 bytes and the reason,
// holds its partition until Seek passes it over; [Hooks.OnError] tells.
func WithDeadLetter(subject string) Option {
	return func(c *config) { c.poison, c.deadLetter = PoisonDeadLetter, subject }
}

// ExpiredPolicy is what happens when messages were removed from the beginning of a stream before they were read: by age, by a limit, or by a
// purge. What was removed behind messages that are still there is not noticed: by MaxMsgsPerSubject, a purge of one subject, a message's own
// TTL, or one by one.
type ExpiredPolicy uint8

const (
	// ExpiredSkip, the default, reports the range and goes on with the first message that is there.
	ExpiredSkip ExpiredPolicy = iota
	// ExpiredFail stops the partition with an [*ExpiredError]. Seek, or Resume, which accepts the loss, starts it again. Where the
	// loss happens between two looks at the stream, which are a second apart, messages after the gap may have been handed out before. While
	// nothing is asked for (the partition is paused, or its buffer full) it may be noticed by the next message only.
	ExpiredFail
)

// WithExpired sets what happens when messages were removed before they were read.
func WithExpired(p ExpiredPolicy) Option { return func(c *config) { c.expired = p } }

// RecreatedPolicy is what happens when a partition's stream is not the one that its offset belongs to.
type RecreatedPolicy uint8

const (
	// RecreatedFail, the default, stops the partition with a [*StreamChangedError]. Resume goes on at the beginning of the stream that is
	// there, Seek wherever it is told.
	RecreatedFail RecreatedPolicy = iota
	// RecreatedEarliest goes on with the first message of the stream that is there.
	RecreatedEarliest
	// RecreatedLatest goes on with what is stored next.
	RecreatedLatest
)

// WithRecreated sets what happens when a stream was recreated, or has lost its end.
func WithRecreated(p RecreatedPolicy) Option { return func(c *config) { c.recreated = p } }

// WithSharedAbove sets how many partitions of the group a stream may hold before its partitions are read by one server-side consumer
// for each Reader rather than one for each partition. Default 64. Read together they cost the server less; read apart they do not depend on
// each other, and know their lag.
func WithSharedAbove(n int) Option { return func(c *config) { c.sharedAbove = n } }

// WithHooks sets the hooks, all at once.
func WithHooks(h Hooks) Option { return func(c *config) { c.hooks = h } }

// WithMetrics sets who receives measurements.
func WithMetrics(m Metrics) Option { return func(c *config) { c.metrics = m } }

// WithLogger sets where the Reader and its Manager log. Default, and with nil: nowhere.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) { c.log = cmp.Or(l, slog.New(slog.DiscardHandler)) }
}

// validate reports everything that is wrong, joined.
func (c *config) validate(group string, partitions int) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidConfig}, args...)...))
	}
	for _, s := range []struct {
		name string
		bad  bool
		hint string
	}{
		{"partitions", partitions < 1, "use at least 1"},
		{"WithBuffer", c.bufferMsgs < 1 || c.bufferBytes < 1, "use positive limits, e.g. 500, 8<<20"},
		{"WithTotalBuffer", c.totalMsgs < 1 || c.totalBytes < 1, "use positive limits, e.g. 50_000, 128<<20"},
		{"WithFetchWait", c.fetchWait < 0 || c.fetchBatch < 0, "use durations from 0"},
		{"WithCommit", c.commitEvery <= 0 || c.commitMsgs < 1, "use e.g. 100*time.Millisecond, 100"},
		{"WithConcurrency", c.concurrency < 0, "use 0 for one handler a partition"},
		{"WithRetry", c.retry.Attempts < 0 || c.retry.First <= 0 || c.retry.Limit < c.retry.First, "use e.g. Retry{Attempts: 5}, or with 0 < First <= Limit"},
		{"WithPoison", c.poison > PoisonDeadLetter, "use PoisonStop or PoisonSkip"},
		{"WithOffsets", c.offsetsReplicas < 1 || c.offsetsReplicas > 5, "use 1 to 5 replicas, e.g. DefaultOffsetsBucket, 3, jetstream.FileStorage"},
		{"WithSharedAbove", c.sharedAbove < 0, "use 0 to share always"},
		{"WithMetrics", c.metrics == nil, "leave it out instead"},
		{"WithStrategy", c.strategy == nil, "use strategy.Sticky()"},
	} {
		if s.bad {
			bad("%s: %s", s.name, s.hint)
		}
	}
	if c.poison == PoisonDeadLetter {
		if fault := c.deadLetterFault(); fault != "" {
			bad("WithDeadLetter: the subject %q %s; name one that a stream of its own stores, e.g. WithDeadLetter(\"dead.orders\")", c.deadLetter, fault)
		}
	}
	if fault := bucketFault(c.offsets); fault != "" {
		bad("WithOffsets: the bucket's name %q %s; for example DefaultOffsetsBucket", c.offsets, fault)
	}
	if fault := groupFault(group); fault != "" {
		bad("group %q %s; for example \"order-processors\"", group, fault)
	}
	switch {
	case c.resolver == nil:
		bad("it is not said where the partitions are stored: use WithLayout or WithResolver")
	case c.layout != nil:
		errs = append(errs, c.layout.validate())
		if n := c.layout.partitions; n != partitions && n > 0 {
			bad("the layout has %d partitions, and NewReader was given %d: give it layout.Partitions()", n, partitions)
		}
	case partitions > 0:
		errs = append(errs, c.checkResolver(partitions)...)
	}
	if c.lagAware != nil {
		errs = append(errs, c.lagAware.validate())
	}
	return errors.Join(errs...)
}

// checkResolver asks where every partition is, and refuses what cannot be read.
func (c *config) checkResolver(partitions int) (errs []error) {
	seen := map[string]*filterSet{} // by stream
	for p := range partitions {
		stream, subject := c.resolver(p)
		if seen[stream] == nil {
			seen[stream] = &filterSet{}
		}
		switch other := seen[stream].overlap(subject); {
		case streamFault(stream) != "":
			errs = append(errs, fmt.Errorf("%w: the resolver gives partition %d the stream %q, which %s", ErrInvalidConfig, p, stream, streamFault(stream)))
		case subjectFault(subject, true) != "":
			errs = append(errs, fmt.Errorf("%w: the resolver gives partition %d the subject %q, which %s", ErrInvalidConfig, p, subject, subjectFault(subject, true)))
		case other != nil && other.filter == subject:
			errs = append(errs, fmt.Errorf("%w: the resolver gives partitions %d and %d the same subject %q of stream %q", ErrInvalidConfig, other.part, p, subject, stream))
		case other != nil:
			errs = append(errs, fmt.Errorf("%w: the resolver gives partitions %d and %d the subjects %q and %q of stream %q, which overlap: what matches both would "+
				"be read by both", ErrInvalidConfig, other.part, p, other.filter, subject, stream))
		}
		if subjectFault(subject, true) == "" {
			seen[stream].add(subject, p)
		}
		if len(errs) == 3 {
			break
		}
	}
	return slices.Clip(errs)
}
