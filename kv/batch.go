package kv

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/partigo/parti/types"
)

// MaxBatch is the number of writes that one atomic batch takes (the server's default).
const MaxBatch = 1000

const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
)

// Write is one write of an atomic batch.
type Write struct {
	Key   string
	Value []byte
	// Expect is the revision that the key must be at; 0 means that nothing is stored under it. Ignored where Any is set.
	Expect uint64
	// Any writes over whatever is there.
	Any bool
	// TTL is how long the value lives, in whole seconds; 0 leaves it to the bucket.
	TTL time.Duration
	// Delete writes a delete marker instead of a value.
	Delete bool
}

// Batch applies all writes or none, and returns the new revision of each. A conflict means that at least one key was not at
// the revision that its write expected. A key may occur once.
//
// Only the last message of a batch is answered, for all; a batch whose last message does not reach the server never lands.
//
// There is one hole in "all or none", which is the server's: where a stream has one replica and the account's storage ends in the midst of a
// batch, the writes before that stay. If it was the last one that found no room, the error is a refusal, otherwise the outcome is
// unknown. The keys that were written are then at revisions that the caller does not know, so its next guarded write of them is a conflict.
func (s *Store) Batch(ctx context.Context, writes []Write) ([]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kv: batch not sent: %w", err)
	}
	msgs, err := s.batchMsgs(writes)
	if err != nil {
		return nil, err
	}
	last := len(msgs) - 1
	nc := s.js.Conn()
	for i, m := range msgs[:last] {
		if err := nc.PublishMsg(m); err != nil {
			return nil, fmt.Errorf("%w: batch abandoned: %w", ErrUnavailable, writeCause(writes[i].Key, err))
		}
	}
	key := writes[last].Key
	ctx, cancel := withDeadline(ctx, s.js)
	defer cancel()
	ack, err := requestBatch(ctx, nc, msgs[last])
	if err != nil {
		return nil, s.writeError("batch", key, err)
	}
	if ack.Batch != msgs[last].Header.Get(headerBatchID) || ack.Count != len(writes) || ack.Sequence < uint64(len(writes)) {
		return nil, s.writeError("batch", key, fmt.Errorf("%w: %+v", jetstream.ErrInvalidJSAck, ack))
	}
	revs := make([]uint64, len(writes))
	for i := range writes {
		revs[i] = ack.Sequence - uint64(last-i) // a batch is stored in one run
	}
	return revs, nil
}

func writeCause(key string, err error) error { return fmt.Errorf("publish %q: %w", key, err) }

// batchMsgs returns the messages of a batch. It refuses what the server would refuse after having been sent half of it.
func (s *Store) batchMsgs(writes []Write) ([]*nats.Msg, error) {
	if n := len(writes); n == 0 || n > MaxBatch {
		return nil, fmt.Errorf("kv: %d writes in a batch, 1 to %d fit", n, MaxBatch)
	}
	id := nuid.Next()
	seen := make(map[string]struct{}, len(writes))
	msgs := make([]*nats.Msg, len(writes))
	for i, w := range writes {
		if _, dup := seen[w.Key]; dup {
			return nil, fmt.Errorf("kv: batch writes %q twice", w.Key)
		}
		seen[w.Key] = struct{}{}
		m, err := s.batchMsg(w)
		if err != nil {
			return nil, err
		}
		m.Header.Set(headerBatchID, id)
		m.Header.Set(headerBatchSeq, strconv.Itoa(i+1))
		if i == len(writes)-1 {
			m.Header.Set(headerBatchCommit, "1")
		}
		if most := s.js.Conn().MaxPayload(); most > 0 && int64(m.Size()-len(m.Subject)) > most {
			return nil, writeError("batch", w.Key, fmt.Errorf("%w: %d bytes with headers, the limit is %d", nats.ErrMaxPayload, m.Size()-len(m.Subject), most))
		}
		msgs[i] = m
	}
	return msgs, nil
}

func (s *Store) batchMsg(w Write) (*nats.Msg, error) {
	msg := &nats.Msg{Subject: s.publishSubject(w.Key), Data: w.Value, Header: nats.Header{}}
	ttl := cmp.Or(w.TTL, s.valueTTL)
	if w.Delete {
		msg.Header, msg.Data = deleteHeader(), nil
		ttl = s.markerTTL
	}
	if !w.Any {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(w.Expect, 10))
	}
	return msg, setTTL(msg, ttl)
}

// batchAck is the server's answer to the last message.
type batchAck struct {
	Error    *jetstream.APIError `json:"error"`
	Sequence uint64              `json:"seq"` // of the last message
	Batch    string              `json:"batch"`
	Count    int                 `json:"count"`
}

func requestBatch(ctx context.Context, nc *nats.Conn, last *nats.Msg) (batchAck, error) {
	var ack batchAck
	reply, err := nc.RequestMsgWithContext(ctx, last)
	if err != nil {
		return ack, err
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return ack, errors.Join(jetstream.ErrInvalidJSAck, err)
	}
	if ack.Error != nil {
		return ack, ack.Error
	}
	return ack, nil
}

// setTTL makes the server end the message after d; 0 leaves it to the bucket.
func setTTL(m *nats.Msg, d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < time.Second || d%time.Second != 0:
		return fmt.Errorf("%w: a key cannot live %v: the server takes whole seconds, at least one", types.ErrInvalidConfig, d)
	}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(jetstream.MsgTTLHeader, d.String())
	return nil
}
