package ownership

import (
	"context"
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

// run is one run of a partition: from the decision to start it until its handler and hooks have returned.
type run struct {
	rt     *Runtime
	slot   *slot
	epoch  int64
	owner  types.Ownership
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Guarded by the runtime's lock.
	state  types.OwnershipState
	began  time.Time
	ended  time.Time // when it was told to end
	late   bool      // reported as overdue
	told   bool      // OnLost was called
	over   bool      // handler and OnRevoked have returned; OnLost is not called any more
	onLost sync.WaitGroup
}

// launch begins a run. Held: mu.
func (r *Runtime) launch(s *slot, w *want) {
	ctx, cancel := context.WithCancelCause(context.Background())
	run := &run{
		rt: r, slot: s, epoch: w.epoch, ctx: ctx, cancel: cancel, state: types.OwnershipRunning, began: time.Now(),
		owner: types.Ownership{Partition: w.partition.Clone(), Epoch: w.epoch, Holder: r.holder},
	}
	s.run = run
	r.running.Store(s.id, run)
	r.nRuns.Add(1)
	if !r.passive {
		r.runs.Go(run.main)
	}
}

// cancel marks the slot's run as told to end and returns it, or nil where there is none that still runs. The caller ends it
// after releasing the lock. Held: mu.
func (r *Runtime) cancel(s *slot, to types.OwnershipState) *run {
	run := s.run
	if run == nil || run.state != types.OwnershipRunning {
		return nil
	}
	run.state, run.ended = to, time.Now()
	r.draining[s] = struct{}{}
	r.running.Delete(s.id)
	r.nRuns.Add(-1)
	return run
}

// end cancels the contexts of runs. Contexts are cancelled before any hook is called. Not held: mu.
func (r *Runtime) end(runs []*run, cause error) {
	for _, run := range runs {
		run.cancel(cause)
	}
	if cause == types.ErrLeaseExpired && r.cfg.Hooks.OnLost != nil {
		r.mu.Lock()
		for _, run := range runs {
			run.lose()
		}
		r.mu.Unlock()
	}
	if r.passive {
		for _, run := range runs {
			r.returned(run)
		}
	}
}

// lose calls OnLost in a goroutine of its own, once: it does not wait for the handler, nor for OnRevoked. Held: mu.
func (run *run) lose() {
	run.state = types.OwnershipLost
	hook := run.rt.cfg.Hooks.OnLost
	if hook == nil || run.told || run.over {
		return
	}
	run.told = true
	run.onLost.Go(func() { run.rt.guard("OnLost", run, func() error { hook(run.owner); return nil }) })
}

// main is the goroutine of a run.
func (run *run) main() {
	r := run.rt
	defer r.returned(run)
	if hook := r.cfg.Hooks.OnAssigned; hook != nil {
		r.guard("OnAssigned", run, func() error { hook(run.owner); return nil })
	}
	if r.cfg.Handler != nil {
		run.handle()
	}
	<-run.ctx.Done()
	if hook := r.cfg.Hooks.OnRevoked; hook != nil && context.Cause(run.ctx) == types.ErrRevoked {
		r.guard("OnRevoked", run, func() error { hook(run.owner); return nil })
	}
	r.mu.Lock()
	run.over = true
	r.mu.Unlock()
	run.onLost.Wait()
}

// handle calls the handler again and again until the context ends. What is needed only when it returns early is elsewhere: this
// frame is on the stack of every running partition.
func (run *run) handle() {
	for attempt := 0; run.ctx.Err() == nil; attempt++ {
		began := time.Now()
		err, panicked := run.rt.guard("handler", run, run.call)
		if run.ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartLimit {
			attempt = 0
		}
		run.restart(attempt, err, panicked)
	}
}

func (run *run) call() error { return run.rt.cfg.Handler(run.ctx, run.owner) }

// restart reports a handler that has returned although it owns its partition, and waits before it is called again.
func (run *run) restart(attempt int, err error, panicked bool) {
	r := run.rt
	wait := backoff.Wait(restartFirst, restartLimit, attempt)
	r.cfg.Metrics.HandlerFailed(run.slot.id, panicked)
	r.cfg.Logger.Warn("handler returned while it owns its partition; starting it again",
		"partition", run.slot.id, "epoch", run.epoch, "error", err, "in", wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-run.ctx.Done():
	}
}

// guard calls user code and turns a panic into an error.
func (r *Runtime) guard(what string, run *run, call func() error) (err error, panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			err, panicked = fmt.Errorf("panic: %v", v), true
			r.cfg.Logger.Error("panic in user code", "where", what, "partition", run.slot.id, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	return call(), false
}

// returned ends a run for good and starts what waited for it.
func (r *Runtime) returned(run *run) {
	run.cancel(types.ErrRevoked) // releases the context's memory where the run ended by itself
	r.mu.Lock()
	s := run.slot
	named := false
	for _, n := range r.report.names {
		named = named || n.Partition == s.id && n.Epoch == run.epoch
	}
	s.run = nil
	delete(r.draining, s)
	if !r.fenced {
		r.refit()
	}
	if s.want != nil {
		r.tryStart(s)
	} else {
		delete(r.slots, s.id)
	}
	if len(r.draining) == 0 && len(r.idle) > 0 {
		for _, ch := range r.idle {
			close(ch)
		}
		r.idle = nil
	}
	overdue := run.late
	r.mu.Unlock()
	if overdue {
		r.cfg.Logger.Info("overdue handler has returned", "partition", s.id, "epoch", run.epoch, "after", time.Since(run.ended))
	}
	if named {
		r.cfg.Notify()
	}
}
