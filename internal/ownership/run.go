package ownership

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

// Waits between two starts of a handler that has returned although it still owns its partition.
const (
	restartFirst = 100 * time.Millisecond
	restartLimit = 30 * time.Second
)

// run is one run of a partition: from the decision to start it until its handler and hooks have returned. A worker may have 100,000
// of them, so what only those with user code need is apart.
type run struct {
	slot  *slot
	epoch int64
	user  *userCode // nil where there is none, nor anybody who wants to know: then the run is a fact, not a goroutine

	// Guarded by the runtime's lock.
	began, ended time.Duration // since the runtime was made; ended is when it was told to end
	state        types.OwnershipState
	late         bool // reported as overdue
}

// userCode is the part of a run that handler and hooks need.
type userCode struct {
	partition types.Partition
	holder    *types.Holder
	ctx       context.Context
	cancel    context.CancelCauseFunc
	onLost    sync.WaitGroup

	// Owned by the run's goroutine.
	assigned bool  // OnAssigned was called
	attempts int   // of the handler, in a row
	died     error // why the handler has ended the goroutine before this one; nil: it has not
	revoked  bool  // OnRevoked was called

	// Guarded by the runtime's lock.
	told bool // OnLost was called
	over bool // handler and OnRevoked have returned; OnLost is not called any more
}

// owner is what user code is told about the run: a copy each time. It is not inlined, so that the copy does not lie on the stack of every
// running partition.
//
//go:noinline
func (run *run) owner() *types.Ownership {
	return &types.Ownership{Partition: run.user.partition.Clone(), Epoch: run.epoch, Holder: *run.user.holder}
}

// launch begins a run. Held: mu.
func (r *Runtime) launch(s *slot, w *want) {
	run := &run{slot: s, epoch: s.epoch, state: types.OwnershipRunning, began: time.Since(r.origin)}
	if !r.passive || r.events != nil {
		run.user = &userCode{partition: w.partition, holder: r.me}
	}
	if !r.passive {
		run.user.ctx, run.user.cancel = context.WithCancelCause(context.Background())
		run.user.ctx.Done() // makes the channel here, and not deep in the stack of the run
	}
	if r.events != nil {
		r.tell(s, started(run, w))
	}
	s.run, s.want = run, nil
	s.running.Store(run)
	r.nRuns.Add(1)
	if !r.passive {
		r.runs.Go(func() { r.main(run) })
	}
}

// cancel marks the slot's run as told to end and returns it, or nil where there is none that still runs. The caller ends it
// after releasing the lock. Held: mu.
func (r *Runtime) cancel(s *slot, to types.OwnershipState, cause error) *run {
	run := s.run
	if run == nil || run.state != types.OwnershipRunning {
		return nil
	}
	r.turn(run, to, cause)
	run.ended = time.Since(r.origin)
	r.draining[s] = struct{}{}
	s.running.Store(nil)
	r.nRuns.Add(-1)
	return run
}

// turn changes the state of a run that ends. Held: mu.
func (r *Runtime) turn(run *run, to types.OwnershipState, cause error) {
	from := run.state
	run.state = to
	if r.events != nil && from != to {
		r.tell(run.slot, r.events.turned(run, from, cause))
	}
}

// end cancels the contexts of runs. Contexts are cancelled before any hook is called. Not held: mu.
func (r *Runtime) end(runs []*run, cause error) {
	if r.passive {
		for _, run := range runs {
			r.returned(run)
		}
		return
	}
	for _, run := range runs {
		run.user.cancel(cause)
	}
	if cause == types.ErrLeaseExpired && r.cfg.Hooks.OnLost != nil {
		r.mu.Lock()
		for _, run := range runs {
			r.lose(run)
		}
		r.mu.Unlock()
	}
}

// lose calls OnLost in a goroutine of its own, once: it does not wait for the handler, nor for OnRevoked. Held: mu.
func (r *Runtime) lose(run *run) {
	hook, u := r.cfg.Hooks.OnLost, run.user
	if hook == nil || u.told || u.over {
		return
	}
	u.told = true
	u.onLost.Go(func() { r.guard("OnLost", run, func() error { hook(*run.owner()); return nil }) })
}

// errExited: user code has ended its goroutine instead of returning, as runtime.Goexit and t.FailNow do.
var errExited = errors.New("the goroutine was ended (runtime.Goexit)")

// main is the goroutine of a run. If user code ends it, another one goes on where it was.
func (r *Runtime) main(run *run) {
	u := run.user
	over := false
	defer func() {
		if over {
			r.returned(run)
			return
		}
		if u.attempts > 0 {
			u.died = errExited
		}
		r.runs.Go(func() { r.main(run) })
	}()
	if hook := r.cfg.Hooks.OnAssigned; hook != nil && !u.assigned {
		u.assigned = true
		r.guard("OnAssigned", run, func() error { hook(*run.owner()); return nil })
	}
	if r.cfg.Handler != nil {
		r.handle(run)
	}
	<-u.ctx.Done()
	if hook := r.cfg.Hooks.OnRevoked; hook != nil && !u.revoked && context.Cause(u.ctx) == types.ErrRevoked {
		u.revoked = true
		r.guard("OnRevoked", run, func() error { hook(*run.owner()); return nil })
	}
	r.mu.Lock()
	u.over = true
	r.mu.Unlock()
	u.onLost.Wait()
	over = true
}

// handle calls the handler again and again until the context ends. What is needed only when it returns early is elsewhere: this
// frame is on the stack of every running partition.
func (r *Runtime) handle(run *run) {
	u := run.user
	if died := u.died; died != nil && u.ctx.Err() == nil {
		u.died = nil
		r.restart(run, died, true)
	}
	for u.ctx.Err() == nil {
		began := time.Now()
		u.attempts++
		err, panicked := r.call(run)
		if u.ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartLimit {
			u.attempts = 1
		}
		r.restart(run, err, panicked)
	}
}

// call calls the handler once. It is no closure in a guard, so that it and what is under it leave room on a small stack.
func (r *Runtime) call(run *run) (err error, panicked bool) {
	defer r.recovered("handler", run, &err, &panicked)
	return r.cfg.Handler(run.user.ctx, *run.owner()), false
}

// restart reports a handler that has returned although it owns its partition, and waits before it is called again.
func (r *Runtime) restart(run *run, err error, panicked bool) {
	wait := backoff.Wait(restartFirst, restartLimit, max(run.user.attempts-1, 0))
	if err == nil {
		err = errReturned
	}
	r.cfg.Failed(fmt.Errorf("parti: handler of %q: %w", run.slot.id, err))
	r.cfg.Metrics.HandlerFailed(run.slot.id, panicked)
	r.cfg.Logger.Warn("handler returned while it owns its partition; starting it again",
		"partition", run.slot.id, "epoch", run.epoch, "error", err, "in", wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-run.user.ctx.Done():
	}
}

// errReturned: a handler has returned without an error while its context held.
var errReturned = errors.New("returned while it owns its partition")

// guard calls user code and turns a panic into an error.
func (r *Runtime) guard(what string, run *run, call func() error) (err error, panicked bool) {
	defer r.recovered(what, run, &err, &panicked)
	return call(), false
}

// recovered is deferred by what calls user code.
func (r *Runtime) recovered(what string, run *run, err *error, panicked *bool) {
	if v := recover(); v != nil {
		*err, *panicked = fmt.Errorf("panic: %v", v), true
		r.cfg.Logger.Error("panic in user code", "where", what, "partition", run.slot.id, "panic", v, "stack", string(debug.Stack()))
	}
}

// returned ends a run for good and starts what waited for it.
func (r *Runtime) returned(run *run) {
	r.mu.Lock()
	s := run.slot
	named := false
	for _, n := range r.report.names {
		named = named || n.Partition == s.id && n.Epoch == run.epoch
	}
	if r.events != nil {
		r.tell(s, r.events.over(run))
	}
	s.run = nil
	delete(r.draining, s)
	if len(r.draining) == 0 {
		r.draining = map[*slot]struct{}{} // as waiting
	}
	if !r.fenced {
		before := r.report.commit.Version
		r.refit()
		named = named || r.report.commit.Version != before // a later version can be reported again, which releases others too
	}
	if s.epoch != 0 {
		r.tryStart(s)
	} else {
		r.slots.delete(s.id)
	}
	if len(r.draining) == 0 && len(r.idle) > 0 {
		for _, ch := range r.idle {
			close(ch)
		}
		r.idle = nil
	}
	overdue, after := run.late, r.since(run.ended)
	r.mu.Unlock()
	if overdue {
		r.cfg.Logger.Info("overdue handler has returned", "partition", s.id, "epoch", run.epoch, "after", after)
	}
	if named {
		r.cfg.Notify()
	}
}
