package election

import (
	"fmt"
	"time"

	"github.com/partigo/parti/types"
)

// Term is one uninterrupted stretch of leadership. Terms of one bucket are ordered by Revision, and no two share one.
type Term struct {
	// Revision is the revision at which the key was acquired. Renewals do not change it.
	Revision uint64
	// Holder is the life of the worker that leads.
	Holder types.Holder
}

const (
	// maxLease bounds the setting and what a value may claim, so that nonsense cannot keep a group waiting.
	maxLease = time.Hour
	// markerDelay is how long after the lease an expiry marker is expected at the latest (measured: 0.07 to 0.33 s).
	markerDelay = 400 * time.Millisecond
	// abandonDelay is added to the lease before a value that the server has not ended is replaced.
	abandonDelay = time.Second
	// mostLeases bounds, in leases of the own setting, how long a value is respected that is not renewed, whatever lease it claims. It covers a
	// group in which the setting is being changed.
	mostLeases = 6
	// quietLeases is after how many leases of the own setting at most silence is told. A leader renews every third of its lease, so one
	// with up to nine times the own lease is not mistaken.
	quietLeases = 3
	// maxJitter spreads the candidates that hear of the same marker.
	maxJitter = 50 * time.Millisecond
)

// timing is the arithmetic of trust. All instants carry Go's monotonic clock reading, so wall clocks do not matter.
type timing struct {
	lease   time.Duration // whole seconds
	request time.Duration // longest wait for one answer
}

func newTiming(lease, request time.Duration) (timing, error) {
	if lease < time.Second || lease%time.Second != 0 {
		return timing{}, fmt.Errorf("%w: the leader's lease is %v, but the server counts it in whole seconds: use %v",
			types.ErrInvalidConfig, lease, max(time.Second, lease.Round(time.Second)))
	}
	if lease > maxLease {
		return timing{}, fmt.Errorf("%w: the leader's lease is %v, which is how long a crash goes unnoticed: use %v at most",
			types.ErrInvalidConfig, lease, maxLease)
	}
	if request <= 0 {
		return timing{}, fmt.Errorf("%w: RequestTimeout is %v: use a positive duration, such as 2s", types.ErrInvalidConfig, request)
	}
	return timing{lease: lease, request: min(request, lease/3)}, nil
}

// margin is the part of the lease in which a term is not trusted although the server still keeps the key. It covers clocks that
// run at different rates (5 % is far more than crystals and slewing do) and the time from the timer to the end of OnLost.
func (t timing) margin() time.Duration { return t.lease / 20 }

// trustedUntil is when a term proved by a write that was sent at that moment has to be proved again. The server keeps the
// key for the lease from when it stored the write, which is later.
func (t timing) trustedUntil(sent time.Time) time.Time { return sent.Add(t.lease - t.margin()) }

// renewAt is when a leader renews: two more attempts fit before the trust ends.
func (t timing) renewAt(sent time.Time) time.Time { return sent.Add(t.lease / 3) }

// callUntil bounds a call made now: it must have ended when trust ends.
func (t timing) callUntil(now, trusted time.Time) time.Time {
	if end := now.Add(t.request); end.Before(trusted) {
		return end
	}
	return trusted
}

// silentAt is when the key, last heard of at that moment, has been silent for too long: it has been renewed or has expired, and
// an intact subscription would have told.
func silentAt(heard time.Time, lease time.Duration) time.Time { return heard.Add(lease + markerDelay) }

// abandonedAt is when a value first seen at that moment, and not replaced since, is no valid lease any more: its writer sent
// it before it was seen, so its trust has ended. Only a write guarded by its revision may act on this.
func abandonedAt(seen time.Time, lease time.Duration) time.Time {
	return seen.Add(lease + abandonDelay)
}
