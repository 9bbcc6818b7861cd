package source

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// watchRetry is how long Watch waits before it follows the bucket again after that failed or ended.
const watchRetry = time.Second

// Watch returns a channel that receives a value at once, and then after each change; several changes may share one. It is
// closed when ctx ends, and nothing of Watch runs any more then.
//
// A change is heard of within milliseconds as a rule, within milliseconds of reconnecting if the connection was cut, and
// otherwise (see WithReconcile) by comparing. The bucket need not exist yet.
func (s *KVSource) Watch(ctx context.Context) (<-chan struct{}, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &watch{source: s, signal: make(chan struct{}, 1)}
	w.notify()
	go w.run(ctx)
	return w.signal, nil
}

// watch is one call of Watch. Its goroutine owns it all.
type watch struct {
	source *KVSource
	signal chan struct{}

	seen     uint64    // the latest revision of the key that was signalled
	created  time.Time // of seen: a recreated bucket may come to the same revision again
	known    bool      // seen is meaningful
	follower jetstream.KeyWatcher
	cancel   context.CancelFunc // ends follower
}

func (w *watch) run(ctx context.Context) {
	defer close(w.signal)
	nc := w.source.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	reconcile := time.NewTicker(w.source.reconcile)
	defer reconcile.Stop()
	again := time.NewTimer(watchRetry)
	again.Stop()
	defer again.Stop()
	defer w.stop()

	start := func() {
		if !w.start(ctx) {
			again.Reset(watchRetry)
		}
	}
	start()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e, ok := <-w.updates():
			switch {
			case !ok:
				w.stop()
				again.Reset(watchRetry)
			case e != nil:
				w.saw(e.Revision(), e.Created())
			case !w.known: // all that was there has been delivered, and it was nothing
				w.saw(0, time.Time{})
			}
		case <-again.C:
			start()
		case <-status:
			// A follower that was cut off stays blind for long; a new one is current at once.
			start()
			w.compare(ctx)
		case <-reconcile.C:
			if w.compare(ctx) { // the follower did not tell
				start()
			}
		}
	}
}

// start follows the bucket, anew if it did before.
func (w *watch) start(ctx context.Context) bool {
	w.stop()
	ctx, w.cancel = context.WithCancel(ctx) // of the follower's whole life
	limit := time.AfterFunc(tryTimeout, w.cancel)
	bucket, err := w.source.js.KeyValue(ctx, w.source.bucket)
	if err == nil {
		w.follower, err = bucket.Watch(ctx, w.source.key, jetstream.MetaOnly())
	}
	if err == nil && !limit.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		limit.Stop()
		w.stop()
		w.source.logger.Debug("partition list cannot be followed", "bucket", w.source.bucket, "key", w.source.key, "error", err)
	}
	return err == nil
}

// stop ends the follower, if there is one, and takes in what it still has, on which its goroutine would hang.
func (w *watch) stop() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	if w.follower == nil {
		return
	}
	f := w.follower
	w.follower = nil
	_ = f.Stop()
	limit := time.NewTimer(watchRetry) // with a closed connection nobody closes the channel
	defer limit.Stop()
	for {
		select {
		case _, ok := <-f.Updates():
			if !ok {
				return
			}
		case <-limit.C:
			return
		}
	}
}

func (w *watch) updates() <-chan jetstream.KeyValueEntry {
	if w.follower == nil {
		return nil
	}
	return w.follower.Updates()
}

// compare reads the key and reports whether it was news.
func (w *watch) compare(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	e, err := w.source.readRoot(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			w.source.logger.Debug("partition list cannot be read", "error", err)
		}
		return false
	}
	return w.saw(e.Revision, e.Created)
}

// saw signals a revision that is not the latest one seen. A lower one is news too: the bucket was recreated, or the replica
// lags, and a needless signal does no harm. Who looks because of the signal does not read less than revision.
func (w *watch) saw(revision uint64, created time.Time) bool {
	w.source.heard(revision)
	if w.known && revision == w.seen && created.Equal(w.created) {
		return false
	}
	first := !w.known
	w.seen, w.created, w.known = revision, created, true
	w.notify()
	return !first
}

func (w *watch) notify() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}
