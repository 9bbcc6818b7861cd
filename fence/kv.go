package fence

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
)

// Headers beside a value. Values are stored as they are, so that plain readers and watchers of the bucket see what they always saw.
const (
	// HeaderEpoch holds the epoch under which the value was written.
	HeaderEpoch = "Parti-Epoch"

	headerNonce  = "Parti-Nonce"
	headerOp     = "KV-Operation"
	headerReason = "Nats-Marker-Reason"
)

// KV is a NATS KV bucket whose keys are fenced one by one: each key remembers the highest epoch it was written under, and refuses lower
// ones. It holds no state and may be used from any goroutine and by any number of processes.
//
// A write reads the key, compares the epochs, and writes at the revision that it has read; when the key has changed meanwhile it begins
// anew. So a stale read, from a replica that lags behind, costs a round trip and nothing else. An outcome that gets lost on
// the way is found out by reading back a nonce, and by writing again at the same revision with the same nonce, of which the server takes
// one at most.
//
// Every writer must come through a KV. A plain Delete or Purge of a key, also by PurgeDeletes, forgets its epoch.
type KV struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	bucket string
	prefix string // of subjects to publish to
}

// Entry is what is stored under a key.
type Entry struct {
	// Value is nil where the key was never written or was deleted.
	Value []byte
	// Epoch is what the key was written under last; 0 where it was written by a plain put, or never.
	Epoch int64
	// Revision is that of the bucket; 0 where nothing is stored, not even the mark of a delete.
	Revision uint64
	// Exists is false where the key was never written or was deleted.
	Exists bool

	nonce string
}

// OpenKV returns an existing bucket as a fenced sink. It refuses buckets that forget, because they would forget epochs too: those with
// a TTL, and those that make room by dropping old keys. The error wraps types.ErrInvalidConfig then, or jetstream.ErrBucketNotFound.
func OpenKV(ctx context.Context, js jetstream.JetStream, bucket string) (*KV, error) {
	if js == nil {
		return nil, fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", types.ErrInvalidConfig)
	}
	stream, err := js.Stream(ctx, "KV_"+bucket)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("fence: open %q: %w", bucket, jetstream.ErrBucketNotFound)
	case err != nil:
		return nil, fmt.Errorf("fence: open %q: %w", bucket, err)
	}
	c := stream.CachedInfo().Config
	bounded := c.MaxBytes > 0 || c.MaxMsgs > 0
	switch {
	case c.MaxAge > 0:
		return nil, fmt.Errorf("%w: bucket %q forgets epochs: its TTL is %v, use one without", types.ErrInvalidConfig, bucket, c.MaxAge)
	case bounded && c.Discard == jetstream.DiscardOld:
		return nil, fmt.Errorf("%w: bucket %q forgets epochs: it drops old keys when it is full, use discard new", types.ErrInvalidConfig, bucket)
	case c.Mirror != nil:
		return nil, fmt.Errorf("%w: bucket %q is a mirror: open the bucket that it mirrors", types.ErrInvalidConfig, bucket)
	}
	return &KV{js: js, stream: stream, bucket: bucket, prefix: publishPrefix(js) + "$KV." + bucket + "."}, nil
}

// publishPrefix leads to the bucket's subjects where they lie in another domain or account.
func publishPrefix(js jetstream.JetStream) string {
	const usual = "$JS.API"
	o := js.Options()
	switch {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "" && strings.TrimSuffix(o.APIPrefix, ".") != usual:
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return ""
}

// Claim raises the key's epoch, changes nothing else, and returns what is stored. From then on no earlier owner can change it: begin a
// run with it, and go on from what it returns. Watchers of the bucket see the value once more.
func (k *KV) Claim(ctx context.Context, key string, epoch int64) (Entry, error) {
	return k.write(ctx, key, epoch, func(e Entry) (Entry, error) { return e, nil })
}

// Put stores the value under the epoch and returns the new revision. The error is a [*StaleError] when the key has seen a higher one.
//
// Where the error wraps types.ErrOutcomeUnknown, ctx ended before it was known whether the value was stored, or another write came on top of
// it. With any other error nothing was stored. Where ctx has no deadline, 10 s are taken.
func (k *KV) Put(ctx context.Context, key string, value []byte, epoch int64) (revision uint64, err error) {
	e, err := k.write(ctx, key, epoch, func(Entry) (Entry, error) { return Entry{Value: value, Exists: true}, nil })
	return e.Revision, err
}

// Update stores what change makes of the present value, and returns the new revision. change is called again when the key was written
// meanwhile; an error of it ends the update and is returned. Other errors are as for [KV.Put].
func (k *KV) Update(ctx context.Context, key string, epoch int64, change func(Entry) ([]byte, error)) (revision uint64, err error) {
	e, err := k.write(ctx, key, epoch, func(e Entry) (Entry, error) {
		value, err := change(e)
		return Entry{Value: value, Exists: true}, err
	})
	return e.Revision, err
}

// Delete deletes the value; the key remembers its epoch. Errors are as for [KV.Put]. Deleting what does not exist raises the epoch.
func (k *KV) Delete(ctx context.Context, key string, epoch int64) (revision uint64, err error) {
	e, err := k.write(ctx, key, epoch, func(Entry) (Entry, error) { return Entry{}, nil })
	return e.Revision, err
}

// Get returns what is stored. The error wraps jetstream.ErrKeyNotFound where there is no value; the entry tells the key's epoch even
// then. Like any read of a replicated bucket it may be behind; [KV.Claim] is not.
func (k *KV) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	e, err := k.read(ctx, key)
	if err == nil && !e.Exists {
		err = fmt.Errorf("fence: %q: %w", key, jetstream.ErrKeyNotFound)
	}
	return e, err
}

func (k *KV) read(ctx context.Context, key string) (Entry, error) {
	m, err := k.stream.GetLastMsgForSubject(ctx, "$KV."+k.bucket+"."+key)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Entry{}, nil
	case err != nil:
		return Entry{}, fmt.Errorf("fence: read %q: %w", key, err)
	}
	e := Entry{Revision: m.Sequence, nonce: m.Header.Get(headerNonce)}
	if text := m.Header.Get(HeaderEpoch); text != "" {
		if e.Epoch, err = strconv.ParseInt(text, 10, 64); err != nil || e.Epoch <= 0 {
			return Entry{}, fmt.Errorf("%w: key %q has the epoch %q", types.ErrMalformed, key, text)
		}
	}
	if m.Header.Get(headerOp) == "" && m.Header.Get(headerReason) == "" {
		e.Value, e.Exists = m.Data, true
	}
	return e, nil
}

var validKey = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)

func checkKey(key string) error {
	if !validKey.MatchString(key) {
		return fmt.Errorf("fence: %q: %w: use e.g. Partition.ID()", key, jetstream.ErrInvalidKey)
	}
	return nil
}
