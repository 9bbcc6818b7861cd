package natstest

import (
	"context"
	"testing"
	"time"
)

const (
	// unfair is how long a process must have stood still for a scene of Fairly to be played again. Such scenes have leases of 2 s and more.
	unfair = time.Second
	// sceneTimeout bounds one attempt.
	sceneTimeout = 2 * time.Minute
	sceneTries   = 5
)

// Fairly plays a scene in real time whose leases run out if a busy machine leaves the process without a processor for seconds. If the scene fails,
// and the process did stand still meanwhile, that proves nothing, so the scene is played again. Any other failure ends the test.
func Fairly(tb testing.TB, scene func(ctx context.Context) error) {
	tb.Helper()
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(tb.Context(), sceneTimeout)
		stalled := watchStalls()
		err := scene(ctx)
		longest := stalled()
		cancel()
		switch {
		case err == nil:
			return
		case longest < unfair || try == sceneTries:
			tb.Fatal(err)
		}
		tb.Logf("once more, since the process stood still for %v: %v", longest.Round(time.Millisecond), err)
	}
}

// watchStalls returns a function that ends the watch and returns for how long the process got no processor at most.
func watchStalls() (end func() time.Duration) {
	const every = 20 * time.Millisecond
	quit, longest := make(chan struct{}), make(chan time.Duration)
	last := time.Now() // not in the goroutine, which may have to wait for a processor before it begins
	go func() {
		var most time.Duration
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now := time.Now()
				most, last = max(most, now.Sub(last)-every), now
			case <-quit:
				longest <- max(most, time.Since(last)-every)
				return
			}
		}
	}()
	return func() time.Duration {
		close(quit)
		return <-longest
	}
}
