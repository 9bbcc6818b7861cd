package consumer

import (
	"errors"
	"fmt"

	"github.com/partigo/parti/types"
)

// The errors that callers can act on. They are wrapped with detail; compare with errors.Is.
var (
	// ErrInvalidConfig: an argument or option cannot work. The text names it and says what to write instead.
	ErrInvalidConfig = types.ErrInvalidConfig
	// ErrReaderClosed: the Reader was closed, its start has failed, or its connection is closed for good; the error wraps why, too.
	ErrReaderClosed = errors.New("consumer: reader closed")
	// ErrInUse: Process or All runs, and hands out what this call would hand out too.
	ErrInUse = errors.New("consumer: messages are handed out by another call")
	// ErrNotAssigned: the partition is not owned by this Reader at the moment, there is no such partition, or the message to acknowledge
	// was handed out by another Reader.
	ErrNotAssigned = errors.New("consumer: partition not owned by this reader")
	// ErrPartitionLost: the ownership under which the message was handed out is over. What was not acknowledged before is handed out
	// again by the next owner. The error is a [*PartitionLostError] where the next owner is known.
	ErrPartitionLost = errors.New("consumer: partition lost")
	// ErrNeverDelivered: an acknowledgement of a sequence that was not handed out under the present ownership.
	ErrNeverDelivered = errors.New("consumer: acknowledged a message that was never handed out")
	// ErrSeeked: an acknowledgement of a message that was handed out before Seek moved the partition. It has no effect.
	ErrSeeked = errors.New("consumer: partition was moved by Seek after the message was handed out")
	// ErrStreamChanged: the partition's stream is not the one that its offset belongs to. The error is a [*StreamChangedError].
	ErrStreamChanged = errors.New("consumer: stream is not the one that the offset belongs to")
	// ErrExpired: messages were removed from the stream before they were read. The error is an [*ExpiredError].
	ErrExpired = errors.New("consumer: messages were removed before they were read")
	// ErrPoison: a message could not be processed. The error is a [*PoisonError].
	ErrPoison = errors.New("consumer: message could not be processed")
	// ErrInvalidKey: a key would not arrive as it is in the subject, where the layout needs it there, or else in the header [HeaderKey].
	ErrInvalidKey = errors.New("consumer: key cannot be published as it is")
)

// PartitionLostError says who has taken a partition over. errors.Is(err, ErrPartitionLost) holds for it.
type PartitionLostError struct {
	Partition int
	// Epoch is the fencing token of the ownership that is over.
	Epoch int64
	// By is the offset as the next owner has claimed it; the zero Offset where it is not known.
	By Offset
}

func (e *PartitionLostError) Error() string {
	if e.By.Worker == "" {
		return fmt.Sprintf("%v: partition %d (epoch %d)", ErrPartitionLost, e.Partition, e.Epoch)
	}
	return fmt.Sprintf("%v: partition %d (epoch %d) was taken over by %s (epoch %d)", ErrPartitionLost, e.Partition, e.Epoch, e.By.Worker, e.By.Epoch)
}

// Is makes errors.Is find ErrPartitionLost.
func (e *PartitionLostError) Is(target error) bool { return target == ErrPartitionLost }

// UnstoredSeekError: the context of a Seek ended after the partition was moved and before that was known to be stored. Reading goes on at
// the new position; if the partition goes elsewhere before it is stored, it goes on at the one before. errors.Is finds the context's error.
type UnstoredSeekError struct {
	Partition int
	Err       error
}

func (e *UnstoredSeekError) Error() string {
	return fmt.Sprintf("consumer: partition %d was moved by Seek, and that is not known to be stored: %v", e.Partition, e.Err)
}

// Unwrap returns the context's error.
func (e *UnstoredSeekError) Unwrap() error { return e.Err }

// StreamChangedError says how a stream differs from the one that the offset belongs to. errors.Is(err, ErrStreamChanged) holds for
// it.
type StreamChangedError struct {
	Partition int
	// Offset is what is committed.
	Offset Offset
	// Have is the stream that is there now, and LastSequence its last sequence. Where Have equals Offset.Stream, the stream has lost
	// its end: the offset lies beyond LastSequence.
	Have         StreamID
	LastSequence uint64
}

func (e *StreamChangedError) Error() string {
	if e.Have.Equal(e.Offset.Stream) {
		return fmt.Sprintf("%v: partition %d: the offset %d lies beyond the end of stream %s (%d): the stream has lost messages",
			ErrStreamChanged, e.Partition, e.Offset.Sequence, e.Have, e.LastSequence)
	}
	return fmt.Sprintf("%v: partition %d: the offset %d belongs to stream %s, and there is %s: it was recreated, or the partition has moved",
		ErrStreamChanged, e.Partition, e.Offset.Sequence, e.Offset.Stream, e.Have)
}

// Is makes errors.Is find ErrStreamChanged.
func (e *StreamChangedError) Is(target error) bool { return target == ErrStreamChanged }

// ExpiredError names stream sequences that are gone and were not read. Where a stream holds several partitions it cannot be known
// which of them were this partition's: the range is the most that can be missing. errors.Is(err, ErrExpired) holds for it.
type ExpiredError struct {
	Partition   int
	Stream      string
	First, Last uint64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%v: partition %d: stream %s begins after %d; of the sequences %d to %d, those of this partition are missing",
		ErrExpired, e.Partition, e.Stream, e.Last, e.First, e.Last)
}

// Is makes errors.Is find ErrExpired.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// PoisonError is a message that could not be processed, with the last error of its handler. errors.Is(err, ErrPoison) holds for
// it, and errors.Is finds what the handler returned.
type PoisonError struct {
	Message  Message
	Attempts int
	Err      error
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("%v: partition %d, sequence %d of %s, after %d attempts: %v",
		ErrPoison, e.Message.Partition, e.Message.Sequence, e.Message.Stream, e.Attempts, e.Err)
}

// Is makes errors.Is find ErrPoison.
func (e *PoisonError) Is(target error) bool { return target == ErrPoison }

// Unwrap returns the handler's error.
func (e *PoisonError) Unwrap() error { return e.Err }

// permanent marks an error that no further attempt will cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error of a handler as one that no further attempt will cure: the poison policy applies at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}
