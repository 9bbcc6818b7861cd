package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/blob"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

var (
	_ types.RevisionedPartitionSource = (*KVSource)(nil)
	_ types.WatchablePartitionSource  = (*KVSource)(nil)
	_ types.UpdatablePartitionSource  = (*KVSource)(nil)
)

const (
	defaultReconcile = 30 * time.Second
	minReconcile     = 100 * time.Millisecond
	// readTries bounds how often a read starts over because the list was replaced while its chunks were read.
	readTries = 5
)

// KVSource is a list in a NATS KV bucket; see [NewKV].
type KVSource struct {
	js        jetstream.JetStream
	bucket    string
	key       string
	reconcile time.Duration
	logger    *slog.Logger
	fault     error

	mu     sync.Mutex // never held over a call
	store  *kv.Store
	latest uint64  // revision of the key, see heard
	cache  *stored // the last list read, so that an unchanged one is not decoded again
}

// stored is a list as it was read. It is never changed.
type stored struct {
	list     *list // nil where there is none
	root     []byte
	chunks   []string
	revision uint64 // of the key; 0 where neither a value nor a marker is stored
}

// KVOption changes what NewKV makes.
type KVOption func(*KVSource)

// WithReconcile sets how often Watch compares what it knows with what is stored, besides following the bucket (default 30 s,
// at least 100 ms). Followers of a bucket are blind for 20 s after a server restart, and for good when the bucket was
// recreated; this bounds it.
func WithReconcile(every time.Duration) KVOption { return func(s *KVSource) { s.reconcile = every } }

// WithLogger sets where what goes wrong in the background is logged (default: nowhere).
func WithLogger(l *slog.Logger) KVOption { return func(s *KVSource) { s.logger = l } }

// Keys leave room for the suffix of chunks.
var (
	bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	keyName    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// NewKV returns a source that lives under one key of a KV bucket. Any bucket will do, of any history, replicas and storage; it
// may hold other keys, but must not age this one away. The bucket must exist when the source is used, the key need not: no list
// is an empty list.
//
// The list is compressed, and one that is larger than a message is split into chunks under <key>.chunk.<hash>, of which the two
// latest lists' are kept. Changes are atomic: of concurrent ones, each builds on another. What is stored but is not a list gives
// types.ErrMalformed, never a shorter list.
//
// A bad argument is reported by Validate, and by every other method.
func NewKV(js jetstream.JetStream, bucket, key string, opts ...KVOption) *KVSource {
	s := &KVSource{js: js, bucket: bucket, key: key, reconcile: defaultReconcile, logger: slog.New(slog.DiscardHandler)}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: source.NewKV: "+format, append([]any{types.ErrInvalidConfig}, args...)...))
	}
	for _, o := range opts {
		if o == nil {
			bad("an option is nil")
			continue
		}
		o(s)
	}
	if js == nil {
		bad("js is nil: pass jetstream.New(conn)")
	}
	if !bucketName.MatchString(bucket) {
		bad("bucket %q: use letters, digits, '-' and '_'", bucket)
	}
	if !keyName.MatchString(key) {
		bad("key %q: use letters, digits and -/_= in tokens joined by dots, e.g. \"partitions\"", key)
	}
	if s.reconcile < minReconcile {
		bad("reconcile interval %v: use at least %v", s.reconcile, minReconcile)
	}
	if s.logger == nil {
		bad("logger is nil: leave the option out")
	}
	s.fault = errors.Join(errs...)
	return s
}

// Validate reports what is wrong with the arguments of NewKV. It does not ask the server.
func (s *KVSource) Validate() error { return s.fault }

// ListPartitions returns the list, sorted by ID. It may be a little stale, as reads from a replicated bucket are, but not older than what
// this source has read, written, or announced by Watch before: it reads again while it is, for up to 1.3 s. What is still older then is
// taken for a bucket that was recreated or restored.
func (s *KVSource) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	snap, err := s.Snapshot(ctx)
	return snap.Partitions, err
}

// Snapshot returns the list and its revision. Revisions grow with every change, also when the bucket is deleted and recreated
// in between, as long as the wall clocks of those who write do not go back by more than that took. Where nothing is stored, it is 0.
func (s *KVSource) Snapshot(ctx context.Context) (types.SourceSnapshot, error) {
	st, err := s.read(ctx)
	if err != nil || st.list == nil {
		return types.SourceSnapshot{}, err
	}
	return types.SourceSnapshot{Partitions: clone(st.list.Partitions), Revision: st.list.Revision}, nil
}

// read returns what is stored.
func (s *KVSource) read(ctx context.Context) (*stored, error) {
	for try := 1; ; try++ {
		e, err := s.readRoot(ctx)
		if err != nil {
			return nil, err
		}
		st, err := s.decode(ctx, e)
		if err == nil {
			return st, nil
		}
		if errors.Is(err, types.ErrMalformed) {
			return nil, s.damaged(e.Revision, err)
		}
		if !errors.Is(err, kv.ErrNotFound) {
			return nil, fmt.Errorf("source: %s/%s at revision %d: %w", s.bucket, s.key, e.Revision, err)
		}
		// A chunk is gone: the list was replaced twice since its root was read, or the replica lags behind.
		if try == readTries {
			return nil, s.damaged(e.Revision, fmt.Errorf("%w: %w", types.ErrMalformed, err))
		}
		if err := backoff.Sleep(ctx, time.Duration(try)*20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// damaged says what is wrong with what is stored, and what mends it.
func (s *KVSource) damaged(revision uint64, err error) error {
	return fmt.Errorf("source: %s/%s at revision %d is no list: %w; Set puts a list in its place", s.bucket, s.key, revision, err)
}

func (s *KVSource) decode(ctx context.Context, e kv.Entry) (*stored, error) {
	if e.Absent() {
		return &stored{revision: e.Revision}, nil
	}
	s.mu.Lock()
	cached := s.cache
	s.mu.Unlock()
	if cached != nil && bytes.Equal(cached.root, e.Value) {
		same := *cached
		same.revision = e.Revision
		return &same, nil
	}
	l, err := decodeList(ctx, e.Value, s.chunk, maxListSize)
	if err != nil {
		return nil, err
	}
	chunks, err := blob.Chunks(e.Value)
	if err != nil {
		return nil, err
	}
	st := &stored{list: l, root: e.Value, chunks: chunks, revision: e.Revision}
	s.mu.Lock()
	s.cache = st
	s.mu.Unlock()
	return st, nil
}

func (s *KVSource) chunkKey(hash string) string { return s.key + ".chunk." + hash }

// chunk reads one chunk of a list.
func (s *KVSource) chunk(ctx context.Context, hash string) ([]byte, error) {
	store, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	e, err := store.Get(ctx, s.chunkKey(hash))
	if err == nil && e.Absent() {
		err = fmt.Errorf("%w: %q is deleted", kv.ErrNotFound, s.chunkKey(hash))
	}
	return e.Value, err
}

// open returns the bucket, which is looked up once.
func (s *KVSource) open(ctx context.Context) (*kv.Store, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	s.mu.Lock()
	store := s.store
	s.mu.Unlock()
	if store != nil {
		return store, nil
	}
	store, err := kv.OpenStore(ctx, s.js, s.bucket, 0)
	if err != nil {
		return nil, fmt.Errorf("source: bucket %q (it must exist): %w", s.bucket, err)
	}
	s.mu.Lock()
	s.store = store
	s.mu.Unlock()
	return store, nil
}

// reopen makes the next call look the bucket up again: it may have been recreated with other settings.
func (s *KVSource) reopen(store *kv.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == store {
		s.store = nil
	}
}
