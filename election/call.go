package election

import (
	"context"
	"fmt"
	"time"

	"github.com/partigo/parti/types"
)

// hangGrace is how long a call may go on after its context has ended. Calls end at once then, unless the connection blocks in a
// write.
const hangGrace = 10 * time.Millisecond

// call makes a call to the server with a deadline, and does not wait for one that hangs: that one is left to itself, its
// outcome is unknown, and the next call waits until it has ended. So there is one call at a time, but a term ends on time.
func call[T any](e *Elector, parent context.Context, deadline time.Time, f func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithDeadline(parent, deadline)
	defer cancel()
	if !e.awaitOrphan(ctx) {
		return none, fmt.Errorf("election: not sent: an earlier call hangs: %w", ctx.Err())
	}
	type result struct {
		value T
		err   error
	}
	answer := make(chan result, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v, err := f(ctx)
		answer <- result{v, err}
	}()
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(hangGrace)
	defer grace.Stop()
	select {
	case r := <-answer:
		return r.value, r.err
	case <-grace.C:
		e.orphan = ended
		return none, fmt.Errorf("%w: call hangs: %w", types.ErrOutcomeUnknown, ctx.Err())
	}
}

// awaitOrphan waits for a call that was left to itself.
func (e *Elector) awaitOrphan(ctx context.Context) bool {
	if e.orphan == nil {
		return true
	}
	select {
	case <-e.orphan:
		e.orphan = nil
		return true
	case <-ctx.Done():
		return false
	}
}
