package parti

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// drainOrder is what this worker knows of the order that drains it, if there is one. It is for [Status] only: what the worker is given, the
// commits say. The key is heard over the live feed, and read after every claim and whenever the feed may have missed something.
type drainOrder struct {
	asked atomic.Int64 // for a read; whoever made it 1 reads until nobody has asked since it began

	mu       sync.Mutex // guards everything below
	key      string
	revision uint64 // of the newest entry seen, 0: none
	stands   bool
}

// follow begins with the order about another worker ID.
func (d *drainOrder) follow(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key := types.ControlKey(types.ControlDrain, worker, ""); key != d.key {
		d.key, d.revision, d.stands = key, 0, false
	}
}

// forget makes the next entry count whatever its revision: the bucket was recreated.
func (d *drainOrder) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revision, d.stands = 0, false
}

// observe takes in an entry of the key, heard or read. Older ones than were seen are ignored.
func (d *drainOrder) observe(e kv.Entry) {
	o, err := types.DecodeControlOrder(e.Key, e.Value)
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Key != d.key || e.Revision < d.revision {
		return
	}
	d.revision = e.Revision
	if e.Absent() || err != nil || o.Answered() { // an order over which another one was written stands until that is answered
		d.stands = !e.Absent() && err == nil && o.Drains()
	}
}

// known returns the key, and the revision it was last seen at.
func (d *drainOrder) known() (string, uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.key, d.revision
}

// gone takes in that nothing is stored under the key, unless something was heard since it was at this revision.
func (d *drainOrder) gone(key string, revision uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key == d.key && revision == d.revision {
		d.stands = false
	}
}

func (d *drainOrder) get() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stands
}

// readDrain reads the order about this worker, in the background and until a read that began after this call has succeeded. One under way may be
// about its former ID.
func (m *Manager) readDrain() {
	if m.drain.asked.Add(1) > 1 {
		return
	}
	m.jobs.Go(func() {
		retry := backoff.New(100*time.Millisecond, m.set.HeartbeatInterval)
		for {
			asked := m.drain.asked.Load()
			if m.lookAtDrain() == nil {
				if m.drain.asked.CompareAndSwap(asked, 0) {
					return
				}
			} else if backoff.Sleep(m.ctx, retry.Next()) != nil {
				return
			}
		}
	})
}

func (m *Manager) lookAtDrain() error {
	ctx, cancel := context.WithTimeout(m.ctx, m.set.timing().RequestTimeout)
	defer cancel()
	key, revision := m.drain.known()
	e, err := m.parts.buckets.Control.Get(ctx, key)
	switch {
	case err == nil:
		m.drain.observe(e)
	case errors.Is(err, kv.ErrNotFound):
		m.drain.gone(key, revision)
	default:
		return err
	}
	return nil
}
