package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// stored is the value of an offset's key.
type stored struct {
	Offset
	// Nonce is <run>-<number>: a run recognises its own writes by it when the answer to one was lost.
	Nonce string `json:"nonce"`
}

func encodeOffset(s stored) ([]byte, error) { return json.Marshal(s) }

func decodeOffset(raw []byte) (stored, error) {
	var s stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return stored{}, fmt.Errorf("%w: offset: %w", types.ErrMalformed, err)
	}
	if s.Epoch < 0 || s.Partition < 0 {
		return stored{}, fmt.Errorf("%w: offset: negative epoch or partition", types.ErrMalformed)
	}
	return s, nil
}

// repair adds to an error about what is stored under a key how to mend that.
func repair(err error, bucket, key string) error {
	return fmt.Errorf("%w: if nothing of the group runs elsewhere, the key %q of the bucket %q is damaged: delete it, and the partition begins where "+
		"WithStart says, or put {\"sequence\":<last processed>} there", err, key, bucket)
}

func offsetKey(group string, partition int) string { return group + "." + strconv.Itoa(partition) }

// noCluster is the server's error code for more than one replica on a server that stands alone.
const noCluster = 10074

// ensureOffsets opens the bucket of offsets, and creates it where it is missing.
func ensureOffsets(ctx context.Context, js jetstream.JetStream, c *config) (*kv.Store, error) {
	bucket, err := js.KeyValue(ctx, c.offsets)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: c.offsets, Description: "offsets of consumer groups", History: 1, Storage: c.offsetsStorage, Replicas: c.offsetsReplicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // somebody else was faster, with other settings
			bucket, err = js.KeyValue(ctx, c.offsets)
		}
	}
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.ErrorCode == noCluster {
		return nil, fmt.Errorf("%w: WithOffsets asks for %d replicas, and the server is not part of a cluster: use 1: %w", ErrInvalidConfig, c.offsetsReplicas, err)
	}
	if err != nil {
		stream := "KV_" + c.offsets
		err = kv.PermissionError(js.Conn(), "open", err, kv.APIPrefix(js)+"STREAM.INFO."+stream, kv.APIPrefix(js)+"STREAM.CREATE."+stream)
		return nil, fmt.Errorf("consumer: offsets bucket %q: %w", c.offsets, err)
	}
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("consumer: offsets bucket %q: %w", c.offsets, err)
	}
	if ttl := status.TTL(); ttl != 0 {
		return nil, fmt.Errorf("%w: offsets bucket %q drops its keys after %v, offsets must stay: give it no TTL, or choose another with WithOffsets",
			types.ErrForeignBucket, c.offsets, ttl)
	}
	return kv.OpenStore(ctx, js, c.offsets, 10*time.Minute)
}

// offsetWriter writes the offset of one partition under one ownership. It belongs to one goroutine at a time, see run.
type offsetWriter struct {
	store  *atomic.Pointer[kv.Store]
	doubt  chan struct{} // poked when something else is stored than was thought: the bucket may be another one
	key    string
	run    string // identifies this writer among all
	writes int
	rev    uint64                                                      // what is stored as far as is known
	call   func(context.Context) (context.Context, context.CancelFunc) // bounds one request
	owner  types.Ownership
	part   int
}

func (r *Reader) newOffsetWriter(part int, o types.Ownership) *offsetWriter {
	return &offsetWriter{store: &r.offsets, doubt: r.checkOffsets, key: offsetKey(r.group, part), run: uuid.NewString(), owner: o, part: part, call: r.call}
}

// errOffsetChanged: somebody has changed the offset without taking the partition over, e.g. an operator. The run begins anew from
// what is stored.
var errOffsetChanged = errors.New("consumer: the offset was changed from outside")

// claim takes the offset over for this epoch and returns it. The former owner's next write fails then. Conflicts and unknown outcomes are
// resolved; the error is a *PartitionLostError where a higher epoch has claimed it.
func (w *offsetWriter) claim(ctx context.Context) (Offset, error) {
	retry := backoff.New(5*time.Millisecond, 500*time.Millisecond)
	for {
		have, err := w.read(ctx)
		if err != nil {
			return Offset{}, err
		}
		if have.Epoch > w.owner.Epoch {
			return Offset{}, repair(w.lost(have.Offset), w.store.Load().Bucket(), w.key)
		}
		if w.mine(have.Nonce) { // the answer to the write before was lost
			return have.Offset, nil
		}
		o := have.Offset
		o.Partition = w.part
		err = w.write(ctx, o)
		if err == nil {
			return w.stamp(o), nil
		}
		if !kv.IsConflict(err) && !kv.IsUnknown(err) {
			return Offset{}, err
		}
		if err := backoff.Sleep(ctx, retry.Next()); err != nil {
			return Offset{}, err
		}
	}
}

// commit stores the offset, or finds out who has taken it over. It resolves conflicts and unknown outcomes until ctx ends.
func (w *offsetWriter) commit(ctx context.Context, o Offset) error {
	retry := backoff.New(10*time.Millisecond, time.Second)
	err := w.write(ctx, o)
	for err != nil {
		if !kv.IsConflict(err) && !kv.IsUnknown(err) {
			return err
		}
		if kv.IsConflict(err) {
			poke(w.doubt)
		}
		last := w.nonce()
		have, readErr := w.read(ctx)
		switch {
		case readErr != nil:
			return errors.Join(err, readErr)
		case have.Nonce == last:
			return nil
		case have.Epoch > w.owner.Epoch:
			return w.lost(have.Offset)
		case have.Epoch == w.owner.Epoch && !w.mine(have.Nonce):
			return fmt.Errorf("%w: partition %d", errOffsetChanged, w.part)
		}
		// What is stored is older: ours, an earlier owner's written into a bucket that was made anew, or nothing. Only a write
		// that succeeds decides, since the read may be stale.
		if err := backoff.Sleep(ctx, retry.Next()); err != nil {
			return err
		}
		err = w.write(ctx, o)
	}
	return nil
}

// encode encodes the next write.
func (w *offsetWriter) encode(o Offset) ([]byte, error) {
	w.writes++
	return encodeOffset(stored{Offset: w.stamp(o), Nonce: w.nonce()})
}

// next returns the message of the next write. The caller sends it, and sets rev when it has succeeded.
func (w *offsetWriter) next(o Offset) (*nats.Msg, error) {
	raw, err := w.encode(o)
	if err != nil {
		return nil, err
	}
	return w.store.Load().PutMsg(w.key, raw, w.rev)
}

// write tries once.
func (w *offsetWriter) write(ctx context.Context, o Offset) error {
	raw, err := w.encode(o)
	if err != nil {
		return err
	}
	ctx, cancel := w.call(ctx)
	defer cancel()
	rev, err := w.store.Load().Put(ctx, w.key, raw, w.rev, 0)
	if err == nil {
		w.rev = rev
	}
	return err
}

// read reads what is stored, and takes its revision for the next write. Nothing stored is the zero value.
func (w *offsetWriter) read(ctx context.Context) (stored, error) {
	ctx, cancel := w.call(ctx)
	defer cancel()
	e, err := w.store.Load().Get(ctx, w.key)
	if errors.Is(err, kv.ErrNotFound) {
		w.rev = 0
		return stored{}, nil
	}
	if err != nil {
		return stored{}, err
	}
	w.rev = e.Revision
	if e.Absent() {
		return stored{}, nil
	}
	s, err := decodeOffset(e.Value)
	if err != nil {
		err = repair(err, w.store.Load().Bucket(), w.key)
	}
	return s, err
}

func (w *offsetWriter) stamp(o Offset) Offset {
	o.Epoch, o.Worker = w.owner.Epoch, w.owner.Holder.Worker
	return o
}

func (w *offsetWriter) nonce() string          { return w.run + "-" + strconv.Itoa(w.writes) }
func (w *offsetWriter) mine(nonce string) bool { return strings.HasPrefix(nonce, w.run+"-") }
func (w *offsetWriter) lost(by Offset) error {
	return &PartitionLostError{Partition: w.part, Epoch: w.owner.Epoch, By: by}
}
