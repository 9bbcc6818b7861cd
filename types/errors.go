package types

import "errors"

// The errors that callers can act on. They are wrapped with detail; compare with errors.Is.
var (
	// ErrInvalidConfig: a setting or argument cannot work. The text names the setting and a value that works.
	ErrInvalidConfig = errors.New("parti: invalid configuration")
	// ErrInvalidPartition: a partition has no keys, or a key that NATS cannot carry, or a bad weight or label.
	ErrInvalidPartition = errors.New("parti: invalid partition")
	// ErrDuplicatePartition: two partitions of one list have the same ID.
	ErrDuplicatePartition = errors.New("parti: duplicate partition")
	// ErrInvalidLabel: a label has characters that are not allowed, or is too long.
	ErrInvalidLabel = errors.New("parti: invalid label")
	// ErrInvalidWorkerID: a worker ID is not a single key token.
	ErrInvalidWorkerID = errors.New("parti: invalid worker ID")
	// ErrNoPartitions: the source has no partitions and cannot get any.
	ErrNoPartitions = errors.New("parti: no partitions")

	// ErrServerTooOld: the NATS server lacks what the protocol needs.
	ErrServerTooOld = errors.New("parti: NATS server too old")
	// ErrJetStreamDisabled: the server or the account has no JetStream.
	ErrJetStreamDisabled = errors.New("parti: JetStream is not enabled")
	// ErrPermission: the NATS user may not do what the protocol needs. The text names the subject.
	ErrPermission = errors.New("parti: missing NATS permission")
	// ErrForeignBucket: a stream of the expected name exists, but was not made for this namespace or has settings that the
	// protocol cannot live with.
	ErrForeignBucket = errors.New("parti: bucket has a foreign configuration")
	// ErrNoGroup: the namespace has no buckets: no worker of that group has ever started, or they were deleted.
	ErrNoGroup = errors.New("parti: no such group")
	// ErrNoServer: no answer from NATS within the deadline.
	ErrNoServer = errors.New("parti: no answer from NATS")
	// ErrConnectionClosed: the NATS connection is closed, and a closed one does not come back. It closes by itself where it may not
	// reconnect for ever, and where its login is refused twice.
	ErrConnectionClosed = errors.New("parti: the NATS connection is closed for good: make a new one, with nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort(), and a new Manager on it")
	// ErrPayloadTooLarge: a value exceeds what the server takes.
	ErrPayloadTooLarge = errors.New("parti: payload too large for the server")

	// ErrWorkerIDTaken: a live process holds the worker ID. The text names the holder.
	ErrWorkerIDTaken = errors.New("parti: worker ID taken by a live process")
	// ErrNotStarted: the call needs a started Manager.
	ErrNotStarted = errors.New("parti: not started: call Start first")
	// ErrAlreadyStarted: Start was called before; a Manager lives once.
	ErrAlreadyStarted = errors.New("parti: already started: a Manager lives once, make one Manager for each life")
	// ErrStopped: the Manager was stopped.
	ErrStopped = errors.New("parti: stopped: a Manager lives once, make a new one")

	// ErrDrainTimeout: Stop's context ended before every handler had returned. The text names the partitions.
	ErrDrainTimeout = errors.New("parti: handlers have not returned")

	// ErrRevoked is the cause of a partition context that ended because the partition goes to another owner, or because
	// the Manager stops. The handler may finish what it is doing.
	ErrRevoked = errors.New("parti: partition revoked")
	// ErrLeaseExpired is the cause of a partition context that ended because this worker can no longer prove that it is
	// alive to the group. The partition may run elsewhere soon: stop at once.
	ErrLeaseExpired = errors.New("parti: lease expired")

	// ErrRefused: the leader refused an order. The text says why.
	ErrRefused = errors.New("parti: refused by the leader")
	// ErrOrderGone: an order was deleted, has expired unanswered, or was replaced by another one under its key. What has become of it is not
	// known. The text says which.
	ErrOrderGone = errors.New("parti: the order is gone")
	// ErrNotLeader: the call can be answered by the leader only.
	ErrNotLeader = errors.New("parti: not the leader")
	// ErrLeadershipLost: leadership could not be proved at the moment of the write; nothing was written.
	ErrLeadershipLost = errors.New("parti: leadership lost")
	// ErrCommitConflict: the commit is not the one this leader built on; nothing was written.
	ErrCommitConflict = errors.New("parti: commit conflict")
	// ErrOutcomeUnknown: a write may or may not have landed. It is resolved before anything else is written.
	ErrOutcomeUnknown = errors.New("parti: outcome of a write unknown")
	// ErrCoverageMismatch: assigned and parked partitions together are not the source's.
	ErrCoverageMismatch = errors.New("parti: assignment does not cover the source")
	// ErrInvalidAssignment: a strategy returned something that is no assignment.
	ErrInvalidAssignment = errors.New("parti: strategy returned an invalid assignment")
	// ErrStrategyFailed: a strategy returned an error, panicked or exceeded its time.
	ErrStrategyFailed = errors.New("parti: strategy failed")
	// ErrSourceFailed: a partition source returned an error, panicked or exceeded its time.
	ErrSourceFailed = errors.New("parti: partition source failed")
	// ErrSuspiciousObservation: an observation is too different from the last one to be believed yet.
	ErrSuspiciousObservation = errors.New("parti: observation not believed yet")
	// ErrPartialListing: a listing ended before it was complete.
	ErrPartialListing = errors.New("parti: incomplete listing")

	// ErrUnsupportedSchema: a value was written by a release with a newer major schema. Upgrade this process.
	ErrUnsupportedSchema = errors.New("parti: unsupported schema")
	// ErrMalformed: a value cannot be decoded or breaks an invariant of its format.
	ErrMalformed = errors.New("parti: malformed value")
)
