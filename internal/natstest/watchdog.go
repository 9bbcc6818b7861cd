package natstest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// stallLimit is the real time in which virtual time has to advance. A large group on a busy machine may need many seconds for one of its own.
const stallLimit = 3 * time.Minute

// watchdog notices the two ways in which a bubble can hang, neither of which synctest reports: virtual time stands still,
// or it runs on and the test never ends. Both end the process with the goroutines concerned, as a timeout of
// go test would, but sooner and with the reason.
type watchdog struct {
	name  string
	limit time.Duration

	id    atomic.Pointer[string] // of the bubble
	ticks atomic.Int64           // of the bubble's clock
	quit  chan struct{}          // closed by stop

	left chan struct{} // made in the bubble, closed by leave
}

func startWatchdog(name string, limit time.Duration) *watchdog {
	w := &watchdog{name: name, limit: limit, quit: make(chan struct{})}
	go w.watchReal()
	return w
}

func (w *watchdog) stop() { close(w.quit) }

// enter is called in the bubble, before anything else.
func (w *watchdog) enter() {
	id := bubbleID()
	w.id.Store(&id)
	w.left = make(chan struct{})
	go w.watchVirtual()
}

func (w *watchdog) leave() { close(w.left) }

// watchVirtual runs in the bubble.
func (w *watchdog) watchVirtual() {
	start := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-w.left:
			return
		case <-tick.C:
			w.ticks.Add(1)
			if d := time.Since(start); d > w.limit {
				w.fail(fmt.Sprintf("the test still runs after %v of virtual time (see WithVirtualLimit); what does it wait for?", d))
			}
		}
	}
}

// watchReal runs outside of the bubble.
func (w *watchdog) watchReal() {
	tick := time.NewTicker(stallLimit)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-w.quit:
			return
		case <-tick.C:
			now := w.ticks.Load()
			if now == last {
				w.fail(fmt.Sprintf("virtual time has stood still for %v; does a goroutine wait for a mutex whose holder "+
					"sleeps, for a socket, or for a channel made outside?", stallLimit))
			}
			last = now
		}
	}
}

func (w *watchdog) fail(reason string) {
	panic(fmt.Sprintf("natstest: in the bubble of %s, %s\n\n%s", w.name, reason, w.leftOver()))
}

// leftOver returns the stacks of the bubble's goroutines: first those that keep time from advancing, last the server's.
func (w *watchdog) leftOver() string {
	id := w.id.Load()
	if id == nil {
		return ""
	}
	stacks := goroutines(*id)
	slices.SortStableFunc(stacks, func(a, b string) int { return rank(a) - rank(b) })
	return join(stacks)
}

func rank(stack string) int {
	header, body, _ := strings.Cut(stack, "\n")
	switch {
	case !strings.Contains(header, "(durable)"):
		return 0
	case !strings.Contains(body, "nats-server/"):
		return 1
	default:
		return 2
	}
}

func join(stacks []string) string { return strings.Join(stacks, "\n\n") }

// bubbleID returns how a goroutine's header names the bubble of the calling goroutine.
func bubbleID() string {
	buf := make([]byte, 256)
	header, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "\n")
	_, id, ok := strings.Cut(header, "synctest bubble ")
	if !ok {
		panic("natstest: not in a bubble")
	}
	return "synctest bubble " + strings.TrimRight(id, "]:")
}

// goroutines returns the stacks of the goroutines in a bubble, except for those that make up the test itself.
func goroutines(id string) []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := strings.Split(strings.TrimSpace(string(buf)), "\n\n")
	return slices.DeleteFunc(stacks, func(s string) bool {
		header, body, _ := strings.Cut(s, "\n")
		return !strings.Contains(header, id+"]") && !strings.Contains(header, id+",") ||
			strings.Contains(body, "internal/synctest.Run(") ||
			strings.Contains(body, "testing/synctest.testingSynctestTest(") ||
			strings.Contains(body, "natstest.goroutines(")
	})
}
