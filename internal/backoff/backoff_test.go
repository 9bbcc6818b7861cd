package backoff

import (
	"testing"
	"time"
)

// Both forms wait between a half and the whole of a step that doubles up to the limit.
func TestWaitsDoubleUpToTheLimit(t *testing.T) {
	const first, limit = 100 * time.Millisecond, time.Second
	b := New(first, limit)
	step := first
	for attempt := range 100 {
		for _, got := range []time.Duration{b.Next(), Wait(first, limit, attempt)} {
			if got < step/2 || got > step {
				t.Fatalf("attempt %d waits %v, want %v to %v", attempt, got, step/2, step)
			}
		}
		step = min(2*step, limit)
	}
	b.Reset()
	if got := b.Next(); got > first {
		t.Fatalf("after a reset it waits %v", got)
	}
}

func TestLimitBelowTheFirstStep(t *testing.T) {
	if got := New(time.Second, time.Millisecond).Next(); got > time.Second {
		t.Fatal(got)
	}
}
