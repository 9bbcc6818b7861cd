package heartbeat

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/partigo/parti/types"
)

// Timing are the durations that a lease depends on.
type Timing struct {
	// TTL is how long the server keeps the key after a write.
	TTL time.Duration
	// Interval is the time between two heartbeats.
	Interval time.Duration
	// Margin is how long before the server could end the key the worker ends its own lease. It covers the drift of the
	// clocks' rates over one TTL and FenceGrace.
	Margin time.Duration
	// FenceGrace is the part of Margin that handlers have to return in once their contexts were cancelled.
	FenceGrace time.Duration
	// RequestTimeout bounds one call to the server.
	RequestTimeout time.Duration
}

// DefaultTiming derives a timing: margin TTL/8, of which FenceGrace is a half; RequestTimeout min(2 s, TTL/8). The half of the
// margin that is not FenceGrace allows clocks to differ in rate by 6 %, far more than any real pair of clocks.
func DefaultTiming(ttl, interval time.Duration) Timing {
	return Timing{TTL: ttl, Interval: interval, Margin: ttl / 8, FenceGrace: ttl / 16, RequestTimeout: min(2*time.Second, ttl/8)}
}

// MinTTL is the shortest TTL: the server's granularity for markers is one second.
const MinTTL = time.Second

// Validate reports everything that cannot work, joined; each error wraps types.ErrInvalidConfig. The rule that matters:
// TTL − Margin ≥ 2 × Interval + RequestTimeout, so that one lost heartbeat ends nothing.
func (t Timing) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{types.ErrInvalidConfig}, args...)...))
	}
	if t.Interval <= 0 {
		bad("HeartbeatInterval is %v: use a positive duration, e.g. 3s", t.Interval)
	}
	if t.TTL < MinTTL || t.TTL%time.Second != 0 {
		bad("HeartbeatTTL is %v: the server counts whole seconds, at least %v; use e.g. %v", t.TTL, MinTTL, shortestTTL(t.Interval))
	}
	if t.Margin <= t.FenceGrace || t.FenceGrace <= 0 {
		bad("the lease margin (%v) must be longer than FenceGrace (%v), and both positive", t.Margin, t.FenceGrace)
	}
	if t.RequestTimeout <= 0 {
		bad("RequestTimeout is %v: use a positive duration", t.RequestTimeout)
	}
	if need := 2*t.Interval + t.RequestTimeout; len(errs) == 0 && t.TTL-t.Margin < need {
		bad("HeartbeatTTL %v is too short for HeartbeatInterval %v: TTL less the margin (%v) must be at least two intervals and one "+
			"request timeout (%v), so that one lost heartbeat ends nothing; use a TTL of at least %v",
			t.TTL, t.Interval, t.Margin, need, shortestTTL(t.Interval))
	}
	return errors.Join(errs...)
}

// shortestTTL returns the shortest TTL that goes with the interval.
func shortestTTL(interval time.Duration) time.Duration {
	ttl := MinTTL
	for t := DefaultTiming(ttl, interval); t.TTL-t.Margin < 2*interval+t.RequestTimeout; t = DefaultTiming(ttl, interval) {
		ttl += time.Second
	}
	return ttl
}

// Lease is how long a worker may act on its ID, on its own monotonic clock: until the moment before its last successful write
// was sent, plus TTL, less the margin. One goroutine renews it; any may read it.
type Lease struct {
	term  time.Duration // TTL − margin
	base  time.Time
	until atomic.Int64 // nanoseconds after base; 0: no lease
}

// NewLease returns a lease that is not held.
func NewLease(t Timing) *Lease { return &Lease{term: t.TTL - t.Margin, base: time.Now()} }

// Renew extends the lease by a write that was sent at sentAt and succeeded. It never shortens it.
func (l *Lease) Renew(sentAt time.Time) {
	until := int64(sentAt.Add(l.term).Sub(l.base))
	if until > l.until.Load() {
		l.until.Store(until)
	}
}

// End ends the lease.
func (l *Lease) End() { l.until.Store(0) }

// Left returns how much of the lease is left; 0 or less means that it has run out or was never held.
func (l *Lease) Left() time.Duration {
	return time.Duration(l.until.Load()) - time.Since(l.base)
}

// Valid reports whether the lease holds now.
func (l *Lease) Valid() bool { return l.Left() > 0 }
