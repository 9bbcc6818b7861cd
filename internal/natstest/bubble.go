package natstest

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Bubble runs f in virtual time with a server of its own, as the package comment explains. Afterwards the t.Cleanup
// functions of f run, clients are killed, the server is stopped, and whatever still runs fails the test.
func Bubble(t *testing.T, f func(t *testing.T, env *Env), opts ...Option) {
	t.Helper()
	c := newConfig(opts)
	if c.server.StoreDir == "" {
		// Made outside: the directory is removed when the outer test ends, and in real time.
		WithStoreDir(t.TempDir())(c)
	}
	emptyTimerPool()
	defer emptyTimerPool() // what comes next need not be a bubble
	w := startWatchdog(t.Name(), c.virtualLimit)
	defer w.stop()

	// A deadlock is a panic of synctest.Test in this goroutine. Left alone it ends all tests of the package, and nobody gets to
	// read why this one failed before.
	reported := false
	defer func() {
		if r := recover(); r != nil && reported {
			t.FailNow()
		} else if r != nil {
			t.Fatalf("natstest: bubble ended with: %v\n%s", r, w.leftOver())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w.enter()
		t.Cleanup(func() { reported = !checkEnded(t) })
		t.Cleanup(w.leave)
		s, err := newServer(c, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		f(t, &Env{Server: s, tb: t, virtual: true})
	})
}

// emptyTimerPool drops the timers in nats.go's global pool. The first collection moves a sync.Pool's items aside, the
// second one frees them.
func emptyTimerPool() {
	runtime.GC()
	runtime.GC()
}

// skewOf is the delay of a bubble's nth client. The step is a prime, so that sums of the delays of different clients
// hardly ever meet.
func skewOf(n int) time.Duration {
	return 100*time.Microsecond + time.Duration(n+1)*1009*time.Nanosecond
}

// checkEnded fails the test if goroutines of its bubble are left. They are given some virtual seconds, for those that only
// have to see that their connection is closed.
func checkEnded(t *testing.T) bool {
	const grace = 10 * time.Second
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		left := goroutines(bubbleID())
		if len(left) == 0 {
			return true
		}
		if time.Since(start) >= grace {
			t.Errorf("natstest: %d goroutine(s) left %v after the end of the test, the clients and the server:\n\n%s",
				len(left), grace, join(left))
			return false
		}
	}
}
