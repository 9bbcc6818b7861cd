package assignment

import (
	"context"
	"sync"
	"sync/atomic"
)

// forEachParallel calls f for 0 to n-1 in at most limit goroutines, and returns the first error when all have ended. After an
// error, or once ctx has ended, it begins no further call, and the context of those under way ends.
func forEachParallel(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, limit) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
