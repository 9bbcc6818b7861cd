package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

const (
	// offsetsLook is how often a Reader looks whether the bucket of offsets is still the one it was.
	offsetsLook = 5 * time.Second
	// offsetsPause is how far apart such looks are at least, however many commits fail.
	offsetsPause = 100 * time.Millisecond
)

// followOffsets makes the bucket of offsets anew when it is gone, and when it is another one than before stores everything there that is
// known here. It is the Reader's own goroutine, so that happens once at a time.
func (r *Reader) followOffsets() {
	known := r.offsets.Load().Created()
	retry := backoff.New(offsetsPause, offsetsLook)
	timer := time.NewTimer(offsetsLook)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.checkOffsets:
		case <-r.ctx.Done():
			return
		}
		created, err := r.lookAtOffsets(known)
		pause := offsetsPause
		switch {
		case err != nil && r.ctx.Err() == nil:
			r.report(whole, "offsets", err)
			pause = retry.Next()
		case err == nil:
			r.cured(whole, "offsets")
			retry.Reset()
			if !created.Equal(known) {
				known = created
				r.restate()
			}
		}
		if backoff.Sleep(r.ctx, pause) != nil {
			return
		}
		timer.Reset(offsetsLook)
		if err != nil {
			poke(r.checkOffsets)
		}
	}
}

// lookAtOffsets returns when the bucket was made, after making it anew where it is gone.
func (r *Reader) lookAtOffsets(known time.Time) (time.Time, error) {
	state, err := r.streamState(r.ctx, r.offsets.Load().Stream())
	switch {
	case err == nil && state.id.Created.Equal(known):
		return known, nil
	case err != nil && !errors.Is(err, errNoStream):
		return known, fmt.Errorf("consumer: look at offsets bucket %q: %w", r.cfg.offsets, err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	store, err := ensureOffsets(ctx, r.js, &r.cfg)
	if err != nil {
		return known, err
	}
	r.offsets.Store(store)
	return store.Created(), nil
}

// restate makes every partition store its offset in the bucket that is there now, at once.
func (r *Reader) restate() {
	err := fmt.Errorf("consumer: the offsets bucket %q was deleted and made anew: this reader stores there what it knows, partitions that nobody "+
		"owns have lost their offsets", r.cfg.offsets)
	r.cfg.log.Error("offsets lost", "error", err)
	r.tellError(whole, err)
	for _, x := range r.owning() {
		x.mu.Lock()
		x.force = true
		x.mu.Unlock()
		poke(x.wakeSave)
		poke(x.hurry)
	}
}

// doubtOffsets asks for a look at the bucket after an error that its end may have caused.
func (r *Reader) doubtOffsets(err error) {
	if errors.Is(err, kv.ErrUnavailable) {
		poke(r.checkOffsets)
	}
}
