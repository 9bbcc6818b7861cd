package ownership

import "github.com/partigo/parti/types"

// Fence ends everything because the incarnation is over. The channel is closed when every run has returned; in Available
// ownership it is closed at once and the runs go on.
func (r *Runtime) Fence(cause error) <-chan struct{} {
	r.mu.Lock()
	var taken []*run
	if !r.fenced {
		r.fenced = true
		if r.expiry != nil {
			r.expiry.Stop()
		}
		for id, s := range r.slots.all {
			r.unwant(s, cause)
			s.epoch = 0
			if r.cfg.Available {
				continue
			}
			if run := r.cancel(s, types.OwnershipLost, cause); run != nil {
				taken = append(taken, run)
			} else if s.run == nil {
				r.slots.delete(id)
			} else {
				r.turn(s.run, types.OwnershipLost, cause)
				r.lose(s.run)
			}
		}
		r.report = report{}
	}
	returned := make(chan struct{})
	if r.cfg.Available {
		close(returned)
	} else {
		r.whenIdle(returned)
	}
	r.mu.Unlock()
	r.end(taken, types.ErrLeaseExpired)
	r.poke() // those who are late are reported
	r.gauge()
	return returned
}

// whenIdle closes ch when no run is left. Held: mu.
func (r *Runtime) whenIdle(ch chan struct{}) {
	for _, s := range r.slots.all {
		if s.run != nil {
			r.idle = append(r.idle, ch)
			return
		}
	}
	close(ch)
}

// Drain revokes everything and starts nothing any more. The channel is closed when every run has returned.
func (r *Runtime) Drain() <-chan struct{} {
	r.mu.Lock()
	r.stopping = true
	var taken []*run
	for _, s := range r.slots.all {
		r.unwant(s, types.ErrStopped)
		if run := r.cancel(s, types.OwnershipDraining, types.ErrStopped); run != nil {
			taken = append(taken, run)
		}
	}
	r.refit()
	returned := make(chan struct{})
	r.whenIdle(returned)
	r.mu.Unlock()
	r.end(taken, types.ErrRevoked)
	r.poke()
	r.gauge()
	return returned
}

// Nameable reports whether a heartbeat can name every run that has been told to end and has not returned. After Drain it stays so.
func (r *Runtime) Nameable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.draining) <= types.MaxUnreturned
}
