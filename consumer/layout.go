package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// MaxPerStream is how many partitions a stream should hold at most. A message costs the more to read, the more partitions are interleaved in
// its stream: half as much with a stream for each as with 64 partitions in one. Those of a fuller stream are read together, see [WithSharedAbove].
const MaxPerStream = 64

// Layout says where the messages of a fixed number of partitions are stored, and under which subject a key is published. Make one with
// [Mapped], [SubjectPerPartition], [StreamPerPartition] or [SpreadOver]; producers and consumers must use equal ones.
//
// Partitions can be added: use a layout with a larger number on both sides. Most keys belong to another partition then, so a key's messages
// of before and after are in order only if the consumers have read everything before the first producer changes. Partitions that
// exist keep their streams, subjects and offsets, under SpreadOver as long as perStream stays the same. A Mapped stream is to be updated by CreateStreams.
type Layout struct {
	partitions int
	perStream  int // partitions in one stream; 0: all
	stream     string
	prefix     string
	mapped     bool
}

// Mapped is one stream, and the server finds the partition: a producer publishes to <prefix>.<key>, with any client and without
// knowing the number of partitions, and the stream stores it as <prefix>.<partition>.<key>. The key must be one subject token of at most 1,024 bytes.
func Mapped(stream, prefix string, partitions int) Layout {
	return Layout{partitions: partitions, stream: stream, prefix: prefix, mapped: true}
}

// SubjectPerPartition is one stream that stores partition p under <prefix>.<p>; the producer finds the partition.
func SubjectPerPartition(stream, prefix string, partitions int) Layout {
	return Layout{partitions: partitions, stream: stream, prefix: prefix}
}

// StreamPerPartition is a stream <stream>-<p> for each partition p, which stores <prefix>.<p>. It is the fastest to read; a server takes
// some thousand streams.
func StreamPerPartition(stream, prefix string, partitions int) Layout {
	return Layout{partitions: partitions, perStream: 1, stream: stream, prefix: prefix}
}

// SpreadOver is streams <stream>-<i> that hold perStream partitions each (0: [MaxPerStream]), the subjects being <prefix>.<p>. It is the layout for
// many partitions.
func SpreadOver(stream, prefix string, partitions, perStream int) Layout {
	if perStream == 0 {
		perStream = MaxPerStream
	}
	return Layout{partitions: partitions, perStream: perStream, stream: stream, prefix: prefix}
}

// Partitions returns the number of partitions.
func (l Layout) Partitions() int { return l.partitions }

// Resolve says where a partition is stored; it is a [Resolver].
func (l Layout) Resolve(partition int) (stream, subject string) {
	subject = l.prefix + "." + strconv.Itoa(partition)
	if l.mapped {
		subject += ".*"
	}
	return l.streamOf(partition), subject
}

func (l Layout) streamOf(partition int) string {
	if l.perStream == 0 {
		return l.stream
	}
	return l.stream + "-" + strconv.Itoa(partition/l.perStream)
}

// Partition returns the partition of a key: the 32-bit FNV-1a hash of its bytes modulo the number of partitions. It is what
// {{partition(n,…)}} computes in the server's subject mappings.
func (l Layout) Partition(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(max(l.partitions, 1)))
}

// maxToken is how long a key may be where it is part of the subject. A server ends the connection of a client whose line with the subject is
// longer than 4 KiB, replies and prefixes included.
const maxToken = 1024

// Subject returns the subject to publish a key's messages to. The error wraps [ErrInvalidKey].
func (l Layout) Subject(key string) (string, error) {
	if !l.mapped {
		return l.prefix + "." + strconv.Itoa(l.Partition(key)), nil
	}
	if len(key) > maxToken {
		return "", fmt.Errorf("%w: it has %d bytes, and no more than %d can be part of a subject; use another layout than Mapped", ErrInvalidKey, len(key), maxToken)
	}
	if key == "" || strings.ContainsAny(key, ".*> \t\r\n\f\x00\x7f") {
		return "", fmt.Errorf("%w: %q must be one token, without dots, wildcards, white space and DEL (0x7f); or use another layout than Mapped", ErrInvalidKey, key)
	}
	return l.prefix + "." + key, nil
}

// Streams returns the configurations of all streams, made from template, which holds what they have in common: storage,
// replicas, retention and limits.
func (l Layout) Streams(template jetstream.StreamConfig) []jetstream.StreamConfig {
	if l.perStream == 0 {
		c := template
		c.Name, c.Subjects = l.stream, []string{l.prefix + ".*"}
		if l.mapped {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{
				Source:      l.prefix + ".*",
				Destination: fmt.Sprintf("%s.{{partition(%d,1)}}.{{wildcard(1)}}", l.prefix, l.partitions),
			}
		}
		return []jetstream.StreamConfig{c}
	}
	var all []jetstream.StreamConfig
	for first := 0; first < l.partitions; first += l.perStream {
		c := template
		c.Name, c.Subjects = l.streamOf(first), nil
		for p := first; p < min(first+l.perStream, l.partitions); p++ {
			c.Subjects = append(c.Subjects, l.prefix+"."+strconv.Itoa(p))
		}
		all = append(all, c)
	}
	return all
}

// CreateStreams creates the streams that are missing and gives those that exist the subjects and settings of the template. It is for
// the producer's side, or for whoever deploys; a Reader creates no streams.
func (l Layout) CreateStreams(ctx context.Context, js jetstream.JetStream, template jetstream.StreamConfig) error {
	if js == nil {
		return fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", ErrInvalidConfig)
	}
	if err := l.validate(); err != nil {
		return err
	}
	for _, c := range l.Streams(template) {
		if _, err := js.CreateOrUpdateStream(ctx, c); err != nil {
			return fmt.Errorf("consumer: stream %s: %w", c.Name, err)
		}
	}
	return nil
}

func (l Layout) validate() error {
	var errs []error
	if l.partitions < 1 {
		errs = append(errs, fmt.Errorf("%w: the layout has %d partitions: use at least 1", ErrInvalidConfig, l.partitions))
	}
	if l.perStream < 0 {
		errs = append(errs, fmt.Errorf("%w: SpreadOver puts %d partitions into a stream: use 0 for %d", ErrInvalidConfig, l.perStream, MaxPerStream))
	}
	if fault := streamFault(l.stream); fault != "" {
		errs = append(errs, fmt.Errorf("%w: the layout's stream %q %s; use e.g. \"ORDERS\"", ErrInvalidConfig, l.stream, fault))
	}
	if fault := subjectFault(l.prefix, false); fault != "" {
		errs = append(errs, fmt.Errorf("%w: the layout's prefix %q %s; use e.g. \"orders\"", ErrInvalidConfig, l.prefix, fault))
	}
	return errors.Join(errs...)
}
