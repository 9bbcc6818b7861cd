package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// KeepOffsets makes a bucket for offsets that keeps every value ever written. Make it before the first reader starts.
func KeepOffsets(ctx context.Context, js jetstream.JetStream, bucket string, replicas int, storage jetstream.StorageType) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1 << 40, Replicas: replicas, Storage: storage,
		AllowRollup: true, DenyDelete: true, AllowDirect: true, Discard: jetstream.DiscardNew,
	})
	return err
}

// Read reads what is stored in the streams, whose subjects end in the number of the partition and whose payloads are counters, and all writes of the group's
// offsets. Nobody may write any more.
func Read(ctx context.Context, js jetstream.JetStream, streams []string, bucket, group string) (*Records, error) {
	var out Records
	for _, name := range streams {
		err := each(ctx, js, name, "", func(subject string, sequence uint64, data []byte) error {
			part, err := strconv.Atoi(subject[strings.LastIndexByte(subject, '.')+1:])
			if err != nil {
				return err
			}
			counter, err := strconv.Atoi(string(data))
			if err != nil {
				return err
			}
			out.Messages = append(out.Messages, Message{part, sequence, counter})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	prefix := "$KV." + bucket + "." + group + "."
	err := each(ctx, js, "KV_"+bucket, prefix+"*", func(subject string, _ uint64, data []byte) error {
		part, err := strconv.Atoi(subject[len(prefix):])
		if err != nil {
			return err
		}
		var o struct {
			Sequence uint64
			Epoch    int64
			Worker   string
			Nonce    string // <writer>-<number>
		}
		if err := json.Unmarshal(data, &o); err != nil {
			return err
		}
		end := strings.LastIndexByte(o.Nonce, '-')
		if end < 0 {
			return fmt.Errorf("ledger: nonce %q", o.Nonce)
		}
		out.Offsets = append(out.Offsets, Offset{part, o.Sequence, o.Epoch, o.Worker, o.Nonce[:end]})
		return nil
	})
	return &out, err
}

// each calls f for every message that the stream holds at the moment, or those of a subject, in order. How many there are is what the stream's leader
// says: the consumer may be on a replica that lags.
func each(ctx context.Context, js jetstream.JetStream, name, subject string, f func(subject string, sequence uint64, data []byte) error) error {
	var c jetstream.Consumer
	var left uint64
	if err := repeat(ctx, func(ctx context.Context) (err error) {
		if left, err = stored(ctx, js, name, subject); err != nil {
			return err
		}
		c, err = js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, FilterSubject: subject, MemoryStorage: true, InactiveThreshold: time.Minute,
		})
		return err
	}); err != nil {
		return err
	}
	for left > 0 {
		batch, err := c.Fetch(int(min(left, 5000)), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if err := f(m.Subject(), meta.Sequence.Stream, m.Data()); err != nil {
				return fmt.Errorf("ledger: %s, sequence %d: %w", name, meta.Sequence.Stream, err)
			}
			left--
		}
		if ctx.Err() != nil {
			return fmt.Errorf("ledger: %d messages of %s could not be read: %w", left, name, ctx.Err())
		}
	}
	_ = js.DeleteConsumer(ctx, name, c.CachedInfo().Name) // it ends by itself, too
	return nil
}

// stored returns how many messages the stream holds, or has of the subject.
func stored(ctx context.Context, js jetstream.JetStream, name, subject string) (n uint64, err error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	if subject == "" {
		return s.CachedInfo().State.Msgs, nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, err
	}
	for _, of := range info.State.Subjects {
		n += of
	}
	return n, nil
}

// repeat sends requests until they succeed or ctx ends: a stream without a leader answers none.
func repeat(ctx context.Context, request func(ctx context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := request(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
