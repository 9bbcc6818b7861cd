package consumer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/partigo/parti/types"
)

// whole is what [Hooks.OnError] gets as its partition where an error concerns all of them.
const whole = -1

// topic is what an error that nobody waits for is about.
type topic struct {
	partition int
	what      string // e.g. commit
}

// told is the last error of a topic.
type told struct {
	text string
	at   time.Time     // when it was told
	wait time.Duration // until it is told again
	seen time.Time
}

const (
	// retellFirst and retellLimit are how soon and how late an error that stays the same is told again; the wait doubles.
	retellFirst, retellLimit = time.Second, time.Minute
	// forgotten is after how long without it an error counts as new.
	forgotten = 2 * time.Minute
)

// report tells of an error that nobody waits for and that is retried: at once when it is another one than before, and with growing
// waits as long as it stays the same.
func (r *Reader) report(partition int, what string, err error) {
	if !r.news(topic{partition, what}, err.Error(), time.Now()) {
		r.cfg.log.Debug("retrying", "partition", partition, "what", what, "error", err)
		return
	}
	r.cfg.log.Warn("retrying", "partition", partition, "what", what, "error", err)
	r.tellError(partition, err)
}

func (r *Reader) tellError(partition int, err error) {
	if hook := r.cfg.hooks.OnError; hook != nil {
		guard(r.cfg.log, "OnError", func() { hook(partition, err) })
	}
}

// news reports whether an error is to be told now.
func (r *Reader) news(about topic, text string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.told[about]
	if t == nil || t.text != text || now.Sub(t.seen) > forgotten {
		r.told[about] = &told{text: text, at: now, wait: retellFirst, seen: now}
		return true
	}
	t.seen = now
	if now.Sub(t.at) < t.wait {
		return false
	}
	t.at, t.wait = now, min(2*t.wait, retellLimit)
	return true
}

// cured forgets the errors of a topic: the next one is told at once.
func (r *Reader) cured(partition int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, topic{partition, what})
}

// partitionOf returns the number of a partition of the Manager, or why it cannot be read. Whoever leads may have been made with more
// partitions than this Reader. A layout says where those are, since adding some moves none of the others.
func (r *Reader) partitionOf(p types.Partition) (int, error) {
	n, err := strconv.Atoi(p.ID())
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%w: the group %s has the partition %q, which is no number: it is led by something else than a Reader; "+
			"stop that, or give the Reader a group of its own", ErrInvalidConfig, r.group, p.ID())
	case n < r.parts:
		return n, nil
	case r.cfg.layout == nil:
		return 0, fmt.Errorf("%w: partition %d of group %s is given to this Reader, which was made with %d partitions and cannot read it: "+
			"deploy all readers of the group with the same number", ErrInvalidConfig, n, r.group, r.parts)
	}
	return n, nil
}

// outgrown tells that the group has more partitions than this Reader was made with.
func (r *Reader) outgrown(n int) {
	err := fmt.Errorf("%w: the group %s has the partition %d, and this Reader was made with %d partitions: it reads it by its layout; "+
		"deploy all readers of the group with the same number", ErrInvalidConfig, r.group, n, r.parts)
	if r.news(topic{whole, "outgrown"}, "", time.Now()) {
		r.cfg.log.Error("readers of the group disagree on its partitions", "error", err)
		r.tellError(whole, err)
	}
}

// unreadable keeps in mind that a partition is owned and cannot be read, until the function is called.
func (r *Reader) unreadable(id string, err error) (done func()) {
	r.mu.Lock()
	r.alien[id] = err
	r.mu.Unlock()
	r.cfg.log.Error("partition is not read", "partition", id, "error", err)
	n, atoiErr := strconv.Atoi(id)
	if atoiErr != nil {
		n = whole
	}
	r.tellError(n, err)
	return func() {
		r.mu.Lock()
		delete(r.alien, id)
		r.mu.Unlock()
	}
}
