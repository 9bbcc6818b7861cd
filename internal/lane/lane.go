// Package lane calls user code that nobody must wait for: the calls of one lane one after the other, those of different lanes in
// parallel.
package lane

import (
	"context"
	"runtime/debug"
	"sync"
)

// spare is how many lanes there may be in any case.
const spare = 1024

// Lanes are lanes by name. A lane, and its goroutine, exists only while there is something to call.
//
// Calls that never return must not cost memory for ever. So a lane is bounded by dropping its oldest waiting call, and the lanes are
// bounded by dropping calls that would need another one; see [Lanes.Expect].
type Lanes struct {
	limit   int
	dropped func(n int)
	onPanic func(name string, v any, stack []byte)

	mu      sync.Mutex
	lanes   map[string]*lane
	most    int // lanes at a time
	lost    int // calls that were dropped and not told
	telling bool
	idle    chan struct{} // closed when there is nothing left to call or tell; nil: there is nothing
}

type lane struct{ waiting []func() }

// New returns no lanes yet. Each will hold as many waiting calls as limit says. dropped and onPanic are called from goroutines of the
// lanes; dropped must not block.
func New(limit int, dropped func(n int), onPanic func(name string, v any, stack []byte)) *Lanes {
	return &Lanes{limit: limit, dropped: dropped, onPanic: onPanic, lanes: map[string]*lane{}, most: spare}
}

// Expect makes room for n lanes that are used at a time, twice over and with some to spare, since those of a moment ago may still have
// something to call. It never takes room away.
func (l *Lanes) Expect(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = max(l.most, 2*n+spare)
}

// Add adds a call to the lane of that name. It calls nothing itself, so it may be used under a lock.
func (l *Lanes) Add(name string, call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.lanes[name]
	if a == nil {
		if len(l.lanes) >= l.most {
			l.drop()
			return
		}
		a = &lane{}
		l.lanes[name] = a
		l.begin()
		go l.run(name, a)
	}
	if len(a.waiting) >= l.limit {
		a.waiting = a.waiting[1:]
		l.drop()
	}
	a.waiting = append(a.waiting, call)
}

// begin and end are called when there is something to do and when it is done. Held: mu.
func (l *Lanes) begin() {
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
}

func (l *Lanes) end() {
	if len(l.lanes) > 0 {
		return
	}
	l.lanes = map[string]*lane{} // a map keeps the memory of the most that it ever held
	if !l.telling {
		close(l.idle)
		l.idle = nil
	}
}

// drop counts a call that is dropped. A goroutine tells, because whoever adds may hold a lock. Held: mu.
func (l *Lanes) drop() {
	l.lost++
	if !l.telling {
		l.telling = true
		l.begin()
		go l.tell()
	}
}

func (l *Lanes) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.lost > 0 {
		n := l.lost
		l.lost = 0
		l.mu.Unlock()
		l.dropped(n)
		l.mu.Lock()
	}
	l.telling = false
	l.end()
}

func (l *Lanes) run(name string, a *lane) {
	over := false
	defer func() {
		if !over { // a call has ended this goroutine, as t.FailNow does: go on in another one
			l.onPanic(name, "the goroutine was ended (runtime.Goexit)", debug.Stack())
			go l.run(name, a)
		}
	}()
	for {
		l.mu.Lock()
		if len(a.waiting) == 0 {
			over = true
			delete(l.lanes, name)
			l.end()
			l.mu.Unlock()
			return
		}
		call := a.waiting[0]
		a.waiting[0] = nil
		a.waiting = a.waiting[1:]
		l.mu.Unlock()
		l.protect(name, call)
	}
}

func (l *Lanes) protect(name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			l.onPanic(name, v, debug.Stack())
		}
	}()
	call()
}

// Wait returns when there is nothing left to call, or with the error of ctx.
func (l *Lanes) Wait(ctx context.Context) error {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
