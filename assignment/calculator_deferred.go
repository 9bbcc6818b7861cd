package assignment

import "time"

// While the recovery grace holds, it is not known who is alive, so the last assignment is held. What the source says then is looked at and
// judged as ever, and waits: what is decided on, by joins for instance, is the list from before. So partitions are not given to the few who
// were heard first, only to move again moments later. Whoever asks with Refresh or TriggerRebalance does not wait.

// believed returns the newest list that is believed, whether it is deferred or not.
func (v *sourceView) believed() sourceList {
	if v.deferred != nil {
		return *v.deferred
	}
	return v.list
}

// accept makes the list the one to decide on.
func (v *sourceView) accept(list sourceList) {
	if !v.known || !v.list.sameAs(list) {
		v.generation++
	}
	v.known, v.list, v.deferred = true, list, nil
}

// sourceHeld returns until when changes of the source are deferred; zero: they are not. Where there is no commit there is nothing to hold.
func (l *loop) sourceHeld(now time.Time) time.Time {
	if at := l.c.troubleAt.Load(); at != nil {
		l.roster.recovery.trouble(*at)
	}
	l.roster.recovery.trouble(l.view.Trouble)
	if l.committed == nil {
		return time.Time{}
	}
	return l.roster.recovery.until(now)
}

// release takes over what was deferred, if the grace is over; else it returns when it will be.
func (l *loop) release(now time.Time) time.Time {
	end := l.sourceHeld(now)
	if l.source.deferred == nil {
		return time.Time{}
	}
	if end.IsZero() {
		l.cfg.Logger.Info("deciding on what the source said while the last assignment was held", "partitions", len(l.source.deferred.partitions))
		l.source.accept(*l.source.deferred)
	}
	return end
}
