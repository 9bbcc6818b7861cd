// Package backoff waits, and spaces out repeated attempts: exponentially, with jitter, up to a limit.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff yields the waits between attempts. It is not safe for concurrent use.
type Backoff struct {
	first, limit, next time.Duration
}

// New returns a backoff that begins around first and doubles up to limit.
func New(first, limit time.Duration) *Backoff {
	return &Backoff{first: first, limit: max(first, limit), next: first}
}

// Next returns the next wait: between a half and the whole of the present step, so that many who failed together do not come
// back together.
func (b *Backoff) Next() time.Duration {
	step := b.next
	b.next = min(b.next*2, b.limit)
	return jitter(step)
}

// Wait returns the wait before the given attempt, counted from 0, for callers that count themselves: what Next would return then.
func Wait(first, limit time.Duration, attempt int) time.Duration {
	step := first
	for ; attempt > 0 && step < limit; attempt-- {
		step *= 2
	}
	return jitter(min(step, limit))
}

func jitter(step time.Duration) time.Duration { return step/2 + rand.N(step/2+1) }

// Reset begins again, after a success.
func (b *Backoff) Reset() { b.next = b.first }

// Sleep waits for d, or returns the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
