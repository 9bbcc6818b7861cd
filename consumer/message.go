package consumer

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Message is one message of a partition. Data and Headers must not be changed.
type Message struct {
	// Stream and Subject say where the message is stored.
	Stream  string
	Subject string
	// Partition is the number of the partition.
	Partition int
	// Sequence is the message's sequence in the stream: it grows within a partition, and has gaps where the stream holds others too.
	Sequence uint64
	// Epoch is the fencing token of the ownership under which the message was handed out. Pass it to the sink along with each
	// write, and have the sink refuse a lower one than it has seen for the partition.
	Epoch int64
	// Timestamp is when the server stored the message.
	Timestamp time.Time
	Headers   nats.Header
	Data      []byte

	run *run
	gen uint32
}

// StreamID tells a stream from another one of the same name.
type StreamID struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// Equal reports whether s and t are the same stream.
func (s StreamID) Equal(t StreamID) bool { return s.Name == t.Name && s.Created.Equal(t.Created) }

// IsZero reports whether s names no stream.
func (s StreamID) IsZero() bool { return s.Name == "" }

func (s StreamID) String() string {
	return fmt.Sprintf("%s (created %s)", s.Name, s.Created.UTC().Format(time.RFC3339Nano))
}

// Offset is what is stored about a partition.
type Offset struct {
	Partition int `json:"partition"`
	// Sequence is the stream sequence up to which, itself included, everything of the partition has been processed. 0: nothing
	// has been.
	Sequence uint64 `json:"sequence"`
	// Epoch and Worker are those of the owner that wrote it.
	Epoch  int64  `json:"epoch"`
	Worker string `json:"worker"`
	// Stream is the stream that Sequence counts in; the zero StreamID until the partition's stream was first seen.
	Stream StreamID `json:"stream"`
	// Lag is how many messages of the partition the owner knew to be unprocessed when it wrote this, and At when that was, by the
	// owner's clock.
	Lag uint64    `json:"lag"`
	At  time.Time `json:"at"`
}

// Position says where a partition's reading begins. Make one with [Earliest], [Latest], [AtSequence] or [AtTime].
type Position struct {
	kind positionKind
	seq  uint64
	time time.Time
}

type positionKind uint8

const (
	earliest positionKind = iota
	latest
	atSequence
	atTime
)

// Earliest is the first message that the stream still has.
func Earliest() Position { return Position{} }

// Latest is what will be stored next: everything that is there is passed over.
func Latest() Position { return Position{kind: latest} }

// AtSequence is the partition's first message with this stream sequence or a higher one. A sequence before the stream's first is
// [Earliest], 0 included; one beyond its end is [Latest].
func AtSequence(sequence uint64) Position { return Position{kind: atSequence, seq: sequence} }

// AtTime is the partition's first message that the server stored at this time or later. A time before the stream's first message
// is [Earliest]; one after its last is [Latest].
func AtTime(t time.Time) Position { return Position{kind: atTime, time: t} }

func (p Position) String() string {
	switch p.kind {
	case latest:
		return "latest"
	case atSequence:
		return fmt.Sprintf("sequence %d", p.seq)
	case atTime:
		return p.time.Format(time.RFC3339Nano)
	}
	return "earliest"
}
