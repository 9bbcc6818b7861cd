package parti

import "github.com/partigo/parti/types"

// The errors of package types that users of a Manager meet. Compare with errors.Is; the text says what to do.
var (
	ErrInvalidConfig      = types.ErrInvalidConfig
	ErrInvalidPartition   = types.ErrInvalidPartition
	ErrDuplicatePartition = types.ErrDuplicatePartition
	ErrInvalidWorkerID    = types.ErrInvalidWorkerID
	ErrInvalidLabel       = types.ErrInvalidLabel
	ErrNoPartitions       = types.ErrNoPartitions

	ErrServerTooOld      = types.ErrServerTooOld
	ErrJetStreamDisabled = types.ErrJetStreamDisabled
	ErrPermission        = types.ErrPermission
	ErrForeignBucket     = types.ErrForeignBucket
	ErrNoServer          = types.ErrNoServer
	ErrConnectionClosed  = types.ErrConnectionClosed
	ErrNoGroup           = types.ErrNoGroup
	ErrMalformed         = types.ErrMalformed
	ErrUnsupportedSchema = types.ErrUnsupportedSchema
	ErrPayloadTooLarge   = types.ErrPayloadTooLarge

	ErrWorkerIDTaken  = types.ErrWorkerIDTaken
	ErrNotStarted     = types.ErrNotStarted
	ErrAlreadyStarted = types.ErrAlreadyStarted
	ErrStopped        = types.ErrStopped
	ErrDrainTimeout   = types.ErrDrainTimeout
	// ErrRefused: the leader refused an order of Drain, EvictWorker and the like. ErrOrderGone: the order is not there any more, and what has
	// become of it is not known.
	ErrRefused   = types.ErrRefused
	ErrOrderGone = types.ErrOrderGone
	// ErrNotLeader, ErrSourceFailed and ErrStrategyFailed are told by Refresh, OnError and Status.LastError.
	ErrNotLeader      = types.ErrNotLeader
	ErrSourceFailed   = types.ErrSourceFailed
	ErrStrategyFailed = types.ErrStrategyFailed

	// ErrRevoked and ErrLeaseExpired are causes of partition contexts, see context.Cause.
	ErrRevoked      = types.ErrRevoked
	ErrLeaseExpired = types.ErrLeaseExpired
)

// Values of package types that appear in this package's API.
type (
	// Partition is one unit of work.
	Partition = types.Partition
	// Ownership is one run of a partition by this worker.
	Ownership = types.Ownership
	// OwnershipChange is a transition of such a run, see Hooks.OnOwnership.
	OwnershipChange = types.OwnershipChange
	// Assignment is a snapshot of what this worker was given.
	Assignment = types.Assignment
	// State is what a Manager is doing.
	State = types.State
)

// The states of a Manager.
const (
	StateInit        = types.StateInit
	StateJoining     = types.StateJoining
	StateWaiting     = types.StateWaiting
	StateStable      = types.StateStable
	StateScaling     = types.StateScaling
	StateRebalancing = types.StateRebalancing
	StateEmergency   = types.StateEmergency
	StateDegraded    = types.StateDegraded
	StateStopping    = types.StateStopping
	StateStopped     = types.StateStopped
)
