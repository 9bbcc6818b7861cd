package assignment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

var (
	errHung    = errors.New("an earlier call has not returned yet")
	errTimeout = errors.New("no result within its time")
)

// caller runs foreign code that may panic, take for ever, or end its goroutine. At most one call is under way: while one that was
// abandoned has not returned, no other one is begun. It is used by one goroutine at a time; hung may be asked by any.
type caller[T any] struct {
	state atomic.Int32
}

const (
	callIdle int32 = iota
	callRunning
	callAbandoned
)

// hung reports whether a call exceeded its time and has not returned.
func (c *caller[T]) hung() bool { return c.state.Load() == callAbandoned }

type outcome[T any] struct {
	value T
	err   error
}

// call returns f's result, or an error when f panics, when the time is over, or when ctx ends; f's context ends then too, and f is
// left to itself.
func (c *caller[T]) call(ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	var none T
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
			c.state.Store(callIdle)
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
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return none, fmt.Errorf("%w (%v)", errTimeout, timeout)
	}
	return none, ctx.Err()
}
