package assignment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// mostLeft is how many calls of a kind are left behind: as many terms of a process can each try anew. Each may keep what it was given in memory.
const mostLeft = 4

var (
	errHung    = errors.New("an earlier call has not returned yet")
	errLeft    = fmt.Errorf("%d earlier calls have not returned, so none is made until one of them has", mostLeft)
	errTimeout = errors.New("no result within its time")
)

// LeftBehind counts the calls that were abandoned and have not returned, over all calculators that share it. The zero value is ready for use.
type LeftBehind struct{ source, watch, strategy atomic.Int32 }

func (l *LeftBehind) count() int { return int(l.source.Load() + l.watch.Load() + l.strategy.Load()) }

// caller runs foreign code that may panic, take for ever, or end its goroutine. At most one of its calls is under way: while one that was
// abandoned has not returned, no other one is begun. Calls of earlier callers count up to a limit only, so that a new term can try anew, and a
// process that is elected again and again does not pile them up. It is used by one goroutine at a time.
type caller[T any] struct {
	state atomic.Int32
	left  *atomic.Int32 // calls of this kind that were abandoned and have not returned
}

const (
	callIdle int32 = iota
	callRunning
	callAbandoned
)

type outcome[T any] struct {
	value T
	err   error
}

// call returns f's result, or an error when f panics, when the time is over, or when ctx ends; f's context ends then too, and f is
// left to itself.
func (c *caller[T]) call(ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	var none T
	if c.left.Load() >= mostLeft {
		return none, errLeft
	}
	if !c.state.CompareAndSwap(callIdle, callRunning) {
		return none, errHung
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := make(chan outcome[T], 1)
	go func() {
		o := outcome[T]{err: errors.New("the call ended its goroutine")}
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
			if c.state.Swap(callIdle) == callAbandoned {
				c.left.Add(-1)
			}
			result <- o
		}()
		o.value, o.err = f(ctx)
	}()
	select {
	case o := <-result:
		return o.value, o.err
	case <-ctx.Done():
	}
	if !c.state.CompareAndSwap(callRunning, callAbandoned) { // it has just returned
		o := <-result
		return o.value, o.err
	}
	c.left.Add(1)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return none, fmt.Errorf("%w (%v)", errTimeout, timeout)
	}
	return none, ctx.Err()
}
