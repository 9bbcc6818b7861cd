package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Op says what an Entry is.
type Op uint8

// The kinds of entries.
const (
	Put    Op = iota // a value
	Delete           // a delete marker: somebody deleted or purged the key
	Expire           // an expiry marker: the server ended the key because its time was over
)

// Entry is one stored state of a key: a value, or a marker.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Op       Op
	// Created is the server's wall clock when it stored the entry.
	Created time.Time
}

// Absent reports whether the entry is a marker: there is no value.
func (e Entry) Absent() bool { return e.Op != Put }

// Store is one bucket.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	bucket string
	// markerTTL is how long the marker of a delete lives, so that deletes leave nothing behind for ever.
	markerTTL time.Duration
	// valueTTL is how long a value lives that is written without a TTL of its own; 0 is for ever.
	valueTTL time.Duration
}

// OpenStore returns the existing bucket of that name. markerTTL is how long the markers of its deletes live.
func OpenStore(ctx context.Context, js jetstream.JetStream, bucket string, markerTTL time.Duration) (*Store, error) {
	stream, err := js.Stream(ctx, streamName(bucket))
	if err != nil {
		return nil, readError("open", bucket, PermissionError(js.Conn(), "open", err, APIPrefix(js)+"STREAM.INFO."))
	}
	return &Store{js: js, stream: stream, bucket: bucket, markerTTL: markerTTL}, nil
}

func streamName(bucket string) string { return "KV_" + bucket }

// Bucket returns the bucket's name.
func (s *Store) Bucket() string { return s.bucket }

// JetStream returns the context the store works on.
func (s *Store) JetStream() jetstream.JetStream { return s.js }

// Stream returns the name of the stream behind the bucket.
func (s *Store) Stream() string { return streamName(s.bucket) }

// Created returns when the stream was created, on the server's clock, as last seen by Identity or when it was opened.
func (s *Store) Created() time.Time { return s.stream.CachedInfo().Created }

// Identity asks the server when the stream was created: another time than before means that it was recreated, and
// ErrUnavailable that it does not exist. A stream that exists and has no leader is a timeout.
func (s *Store) Identity(ctx context.Context) (time.Time, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return time.Time{}, readError("look up", s.bucket, err)
	}
	return info.Created, nil
}

// subject is where the stream stores key.
func (s *Store) subject(key string) string { return "$KV." + s.bucket + "." + key }

// publishSubject is where key is published to: in another domain, through its API.
func (s *Store) publishSubject(key string) string {
	if p := APIPrefix(s.js); p != defaultAPIPrefix {
		return p + s.subject(key)
	}
	return s.subject(key)
}

func (s *Store) key(subject string) string { return strings.TrimPrefix(subject, "$KV."+s.bucket+".") }

// Get reads the last entry of key: a value or a marker. It may be stale. ErrNotFound means that neither is stored.
func (s *Store) Get(ctx context.Context, key string) (Entry, error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, s.subject(key))
	if err != nil {
		return Entry{}, readError("get", key, PermissionError(s.js.Conn(), "get", err, APIPrefix(s.js)+"DIRECT.GET."+s.Stream()+"."))
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence, Op: opOf(m.Header), Created: m.Time}, nil
}

// Put stores value if the key is at revision expect (0: nothing stored, not even a marker) and returns the new revision.
// ttl, where not 0, is how long the value lives, in whole seconds; 0 leaves it to the bucket.
func (s *Store) Put(ctx context.Context, key string, value []byte, expect uint64, ttl time.Duration) (uint64, error) {
	msg := &nats.Msg{Subject: s.publishSubject(key), Data: value}
	return s.publish(ctx, "put", key, msg, expect, ttl)
}

// createTries bounds how often Create follows a key that changes under it.
const createTries = 3

// Create stores value over nothing or over a marker. Where it has to, it reads first; so a conflict means that a value is
// there, that somebody else writes at the same moment, or that the replica read from lags behind.
func (s *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	rev, err := s.Put(ctx, key, value, 0, ttl)
	for try := 1; try < createTries && IsConflict(err); try++ {
		last, getErr := s.Get(ctx, key)
		switch {
		case errors.Is(getErr, ErrNotFound): // the marker has ended meanwhile
			last.Revision = 0
		case getErr != nil:
			return 0, fmt.Errorf("kv: create %q: something is stored: %w", key, getErr)
		case !last.Absent():
			return 0, err
		}
		rev, err = s.Put(ctx, key, value, last.Revision, ttl)
	}
	return rev, err
}

// Delete replaces the value at revision expect by a delete marker, which ends by itself after the store's marker TTL. It
// returns the marker's revision.
func (s *Store) Delete(ctx context.Context, key string, expect uint64) (uint64, error) {
	msg := &nats.Msg{Subject: s.publishSubject(key), Header: deleteHeader()}
	return s.publish(ctx, "delete", key, msg, expect, s.markerTTL)
}

// deleteHeader makes a message a delete marker. It is a purge, though there is no history to purge: a marker of the other kind,
// DEL, is not known as a marker to the server, which writes an expiry marker after it when its time is over.
func deleteHeader() nats.Header { return nats.Header{headerKVOperation: {"PURGE"}} }

func (s *Store) publish(ctx context.Context, op, key string, msg *nats.Msg, expect uint64, ttl time.Duration) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("kv: %s %q not sent: %w", op, key, err)
	}
	if err := setTTL(msg, cmp.Or(ttl, s.valueTTL)); err != nil {
		return 0, err
	}
	ack, err := s.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, s.writeError(op, key, err)
	}
	return ack.Sequence, nil
}

func (s *Store) writeError(op, key string, err error) error {
	return PermissionError(s.js.Conn(), op, writeError(op, key, err), s.publishSubject(key))
}

// Forget removes the entry of key that has revision or an older one, and leaves no marker. It is for keys whose absence tells
// nobody anything; a newer entry stays.
func (s *Store) Forget(ctx context.Context, key string, revision uint64) error {
	err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject(key)), jetstream.WithPurgeSequence(revision+1))
	if err != nil {
		err = PermissionError(s.js.Conn(), "forget", err, APIPrefix(s.js)+"STREAM.PURGE.")
		return fmt.Errorf("kv: forget %q: %w", key, err)
	}
	return nil
}
