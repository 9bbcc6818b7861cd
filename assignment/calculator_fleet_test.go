package assignment

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// fleet is a number of workers reduced to their heartbeats. One goroutine writes them all.
type fleet struct {
	t       *testing.T
	store   *kv.Store
	do      chan func()
	done    chan struct{}
	quit    chan struct{}
	workers map[string]*fakeWorker // owned by the goroutine
	applied int64
	made    int
	tick    uint64
}

type fakeWorker struct {
	hb    types.Heartbeat
	rev   uint64
	quiet bool
	stuck bool // it applies nothing
}

func newFleet(t *testing.T, store *kv.Store) *fleet {
	f := &fleet{t: t, store: store, do: make(chan func()), done: make(chan struct{}), quit: make(chan struct{}), workers: map[string]*fakeWorker{}}
	go f.run()
	t.Cleanup(func() {
		close(f.quit)
		<-f.done
	})
	return f
}

func (f *fleet) run() {
	defer close(f.done)
	tick := time.NewTicker(testInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			return
		case do := <-f.do:
			do()
		case <-tick.C:
			f.keepServerAwake()
			for _, id := range slices.Sorted(func(yield func(string) bool) {
				for id := range f.workers {
					if !yield(id) {
						return
					}
				}
			}) {
				if w := f.workers[id]; !w.quiet && !w.hb.State.Gone() {
					_ = f.write(w) // a lost write is followed by the next
				}
			}
		}
	}
}

// keepServerAwake writes to a key that is nobody's. In virtual time, where a timer fires at the very nanosecond, the server forgets
// to look for the next expiry if nothing at all is written; in real time it does not.
func (f *fleet) keepServerAwake() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if rev, err := f.store.Put(ctx, "tick.tock", nil, f.tick, 0); err == nil {
		f.tick = rev
	}
}

func (f *fleet) call(do func()) {
	done := make(chan struct{})
	f.do <- func() { defer close(done); do() }
	<-done
}

func (f *fleet) write(w *fakeWorker) error {
	f.made++
	if !w.stuck {
		w.hb.AppliedVersion = max(w.hb.AppliedVersion, f.applied)
	}
	w.hb.Nonce, w.hb.Timestamp = fmt.Sprint(f.made), time.Now()
	value, err := w.hb.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	rev, err := f.store.Put(ctx, heartbeatPrefix+w.hb.WorkerID, value, w.rev, 0)
	if err == nil {
		w.rev = rev
	}
	return err
}

// join begins a new incarnation of each worker, over whatever is there.
func (f *fleet) join(ids ...string) {
	f.call(func() {
		for _, id := range ids {
			over := types.ClaimedNothing
			var rev uint64
			if e, err := f.store.Get(context.Background(), heartbeatPrefix+id); err == nil {
				rev = e.Revision
				switch e.Op {
				case kv.Expire:
					over = types.ClaimedExpiry
				case kv.Put:
					over = types.ClaimedOwn
				}
			}
			f.made++
			w := &fakeWorker{rev: rev, hb: types.Heartbeat{
				WorkerID: id, Incarnation: fmt.Sprintf("%s-%d", id, f.made), SchemaVersion: types.HeartbeatSchema,
				Capabilities: types.CapAckV1 | types.CapHandoffV1 | types.CapLabelsV1, State: types.WorkerJoining, ClaimedOver: over,
			}}
			if err := f.write(w); err != nil {
				f.t.Errorf("join %s: %v", id, err)
			}
			f.workers[id] = w
		}
	})
}

// change changes the workers' heartbeats and writes them at once.
func (f *fleet) change(change func(*types.Heartbeat), ids ...string) {
	f.call(func() {
		for _, id := range ids {
			w := f.workers[id]
			change(&w.hb)
			if err := f.write(w); err != nil {
				f.t.Errorf("change %s: %v", id, err)
			}
		}
	})
}

func (f *fleet) leave(ids ...string) {
	f.change(func(h *types.Heartbeat) { h.State = types.WorkerLeft }, ids...)
}

// crash ends the heartbeats. They are renewed once more, so that the keys expire one TTL from now.
func (f *fleet) crash(ids ...string) {
	f.change(func(*types.Heartbeat) {}, ids...)
	f.call(func() {
		for _, id := range ids {
			f.workers[id].quiet = true
		}
	})
}

// stuck has the workers go on with their heartbeats and follow no commit any more.
func (f *fleet) stuck(ids ...string) {
	f.call(func() {
		for _, id := range ids {
			f.workers[id].stuck = true
		}
	})
}

// remove deletes the keys as an operator would.
func (f *fleet) remove(ids ...string) {
	f.call(func() {
		for _, id := range ids {
			w := f.workers[id]
			w.quiet = true
			if _, err := f.store.Delete(context.Background(), heartbeatPrefix+id, w.rev); err != nil {
				f.t.Errorf("delete %s: %v", id, err)
			}
		}
	})
}

// ack has everybody report that version as applied, at once.
func (f *fleet) ack(version int64) {
	f.call(func() {
		f.applied = version
		for _, w := range f.workers {
			if !w.quiet && !w.hb.State.Gone() {
				if err := f.write(w); err != nil {
					f.t.Errorf("ack of %s: %v", w.hb.WorkerID, err)
				}
			}
		}
	})
}

func (f *fleet) holder(id string) (h types.Holder) {
	f.call(func() { h = f.workers[id].hb.Holder() })
	return h
}
