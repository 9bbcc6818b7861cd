package assignment

import (
	"log/slog"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

// firstSetback is the wait after the first failure to apply a commit; it doubles up to half a lease.
const firstSetback = 20 * time.Millisecond

// setback is what is known of a newest commit that cannot be read. The zero value: there is none. Owned by the follower's loop.
type setback struct {
	revision uint64 // of the commit that failed last
	stage    string // and where
	inARow   int
	since    time.Time
	again    time.Time // not to be tried before, unless another commit comes
	wait     *backoff.Backoff
}

// attempt follows the commit unless it is too early for another try, and returns how long nothing is to be done about it. What wakes the
// loop meanwhile, such as a renewal of the leader's, does not cut the wait short; what asked for a fresh look does.
func (f *Follower) attempt(e kv.Entry, asked bool) time.Duration {
	if !asked && f.setback.inARow > 0 && e.Revision == f.setback.revision {
		if left := time.Until(f.setback.again); left > 0 {
			return left
		}
	}
	if !e.Absent() {
		stage, version, err := f.follow(e)
		if f.ctx.Err() != nil {
			return f.cfg.Silence
		}
		if err != nil {
			return f.failed(e.Revision, version, stage, err)
		}
	}
	if f.setback.inARow > 0 {
		f.setback = setback{}
		f.unread.Store(false)
		f.tell(nil)
	}
	return f.cfg.Silence
}

// failed takes note of a commit that could not be applied, and returns when to try again. It is logged when something about it is new.
func (f *Follower) failed(revision uint64, version int64, stage string, err error) time.Duration {
	clear(f.shards)
	s := &f.setback
	level := slog.LevelDebug
	if s.inARow == 0 {
		s.since = time.Now()
	}
	if s.revision != revision || s.stage != stage {
		level = slog.LevelWarn
	}
	if s.wait == nil || s.revision != revision {
		s.wait = backoff.New(firstSetback, f.cfg.Silence)
	}
	wait := s.wait.Next()
	s.revision, s.stage, s.again = revision, stage, time.Now().Add(wait)
	s.inARow++
	f.unread.Store(true)
	f.cfg.Metrics.CommitRejected(version, stage)
	f.cfg.Logger.Log(f.ctx, level, "commit not applied", "version", version, "stage", stage, "attempt", s.inARow, "error", err)
	f.tell(err)
	return wait
}

func (f *Follower) tell(err error) {
	if f.cfg.Unread != nil {
		f.cfg.Unread(err, f.setback.inARow, f.setback.since)
	}
}

// expectation is how long a commit that was announced may take to arrive before it is read. It grows while reading finds nothing newer:
// then what was announced does not exist. Owned by the follower's loop.
type expectation struct {
	version  int64
	patience time.Duration
}

// missing reports whether the version announced should have arrived by now. since is when it was announced, or read for last.
func (x *expectation) missing(version, highest int64, since time.Time) bool {
	if version != x.version || version <= highest {
		x.version, x.patience = version, announced
	}
	return version > highest && time.Since(since) >= x.patience
}

// next returns how long to wait for it; read: it has just been looked for, in vain.
func (x *expectation) next(since time.Time, read bool, most time.Duration) time.Duration {
	if read {
		x.patience = min(2*x.patience, most)
	}
	return x.patience - time.Since(since)
}
