package ownership

import (
	"context"
	"time"

	"github.com/partigo/parti/internal/lane"
	"github.com/partigo/parti/types"
)

// changesWaiting is how many transitions of one partition may wait for a slow hook: those of a dozen ownerships.
const changesWaiting = 64

// events tells the hook OnOwnership about transitions. They are put in the partition's lane under the runtime's lock, in the step that makes
// the transition, so a lane has the order in which things were.
type events struct {
	hook   func(types.OwnershipChange)
	lanes  *lane.Lanes
	causes map[*run]error // of runs that were told to end and have not returned; guarded by the runtime's lock
}

// newEvents returns nil where there is no hook: then nothing of this costs anything.
func newEvents(cfg *Config) *events {
	if cfg.Hooks.OnOwnership == nil {
		return nil
	}
	logger := cfg.Logger
	return &events{
		hook: cfg.Hooks.OnOwnership, causes: map[*run]error{},
		lanes: lane.New(changesWaiting, cfg.Metrics.ChangesDropped, func(partition string, v any, stack []byte) {
			logger.Error("panic in user code", "where", "OnOwnership", "partition", partition, "panic", v, "stack", string(stack))
		}),
	}
}

// tell has the hook called. Held: mu.
func (r *Runtime) tell(s *slot, c types.OwnershipChange) {
	e := r.events
	c.At = time.Now()
	e.lanes.Expect(len(r.slots.all))
	e.lanes.Add(s.id, func() {
		c.Partition = c.Partition.Clone() // the hook may keep it
		e.hook(c)
	})
}

// Told returns when OnOwnership has been called for everything that has happened, or with the error of ctx.
func (r *Runtime) Told(ctx context.Context) error {
	if r.events == nil {
		return nil
	}
	return r.events.lanes.Wait(ctx)
}

// wanted is the ownership that the slot wants. Held: mu.
func (r *Runtime) wanted(s *slot) types.Ownership {
	return types.Ownership{Partition: s.want.partition, Epoch: s.epoch, Holder: r.holder}
}

// of is the run's ownership.
func of(run *run) types.Ownership {
	return types.Ownership{Partition: run.user.partition, Epoch: run.epoch, Holder: *run.user.holder}
}

// started is the transition of what was wanted into a run.
func started(run *run, w *want) types.OwnershipChange {
	c := types.OwnershipChange{Ownership: of(run), From: w.state, To: run.state}
	if len(w.from) > 0 { // not released, and started all the same
		c.Forced, c.WaitingFor = true, holders(w.from)
	}
	return c
}

// turned is the transition of a run from a state into its present one, which is the beginning of its end. Held: the runtime's lock.
func (e *events) turned(run *run, from types.OwnershipState, cause error) types.OwnershipChange {
	e.causes[run] = cause
	return types.OwnershipChange{Ownership: of(run), From: from, To: run.state, Cause: cause}
}

// over is the last transition of a run. Held: the runtime's lock.
func (e *events) over(ended *run) types.OwnershipChange {
	cause := e.causes[ended]
	delete(e.causes, ended)
	if len(e.causes) == 0 {
		e.causes = map[*run]error{} // as waiting
	}
	return types.OwnershipChange{Ownership: of(ended), From: ended.state, To: types.OwnershipReleased, Cause: cause}
}

func holders(from []types.From) []types.Holder {
	var hs []types.Holder
	for _, f := range from {
		hs = append(hs, f.Holder)
	}
	return hs
}
