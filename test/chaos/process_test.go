package chaos

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what takes a second on an idle machine.
const patience = 3 * time.Minute

// run is one run of a partition, as its worker process reports it.
type run struct {
	partition string
	epoch     int64
}

// process is a worker process, seen by the parent.
type process struct {
	*proc

	mu      sync.Mutex // guards what follows
	id      string
	events  []event
	running map[run]bool
	changed chan struct{}
}

// start starts a worker process and waits until it takes part.
func start(t *testing.T, w *witness, id string) *process {
	t.Helper()
	p := &process{running: map[run]bool{}, changed: make(chan struct{})}
	p.proc = launch(t, roleWorker, p.read, envURL+"="+w.env.Server.URL(), envID+"="+id)
	p.wait(patience, "it joins", func() bool { return p.id != "" })
	return p
}

func (p *process) read(from *proc, line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		from.t.Errorf("process %d said %q", from.pid(), line)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(e)
}

// note keeps what the process said. Held: mu.
func (p *process) note(e event) {
	r := run{e.Partition, e.Epoch}
	switch e.What {
	case joined:
		p.id = e.Text
	case began:
		p.running[r] = true
	case ended:
		delete(p.running, r)
	}
	p.events = append(p.events, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits until cond holds of what the process has said; it is called with the lock held.
func (p *process) wait(d time.Duration, what string, cond func() bool) {
	p.t.Helper()
	if !p.waitFor(d, cond) {
		p.mu.Lock()
		last := p.events[max(0, len(p.events)-10):]
		p.mu.Unlock()
		p.t.Fatalf("process %d: waited %v in vain for: %s; it said last: %+v", p.pid(), d, what, last)
	}
}

func (p *process) waitFor(d time.Duration, cond func() bool) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-limit.C:
			return false
		}
	}
}

// since returns what the process has said after the first n events.
func (p *process) since(n int) []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events[n:])
}

func (p *process) said() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events)
}

// workerID is the one it joined under; empty before.
func (p *process) workerID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}
