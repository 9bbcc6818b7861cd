package natstest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// Env is a running server and the test it runs for.
type Env struct {
	Server *Server

	tb      testing.TB
	virtual bool
}

// Single runs one server in real time, outside of bubbles, until the test or benchmark ends. The server can be reached in
// this process only, or by TCP too with [WithTCP]. Its clients wait for an answer of JetStream for a minute, not 5 s, where nobody says for how
// long: a busy machine may leave a test without a processor for that.
func Single(tb testing.TB, opts ...Option) *Env {
	tb.Helper()
	c := newConfig(append([]Option{WithRequestTimeout(time.Minute)}, opts...))
	if c.server.StoreDir == "" {
		WithStoreDir(tb.TempDir())(c)
	}
	s, err := newServer(c, false)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return &Env{Server: s, tb: tb}
}

// Connect connects a new client, or ends the test. It lasts until the end of the test at most. See [Server.Connect] for an
// error to handle.
func (e *Env) Connect(name string, opts ...nats.Option) *Client {
	e.tb.Helper()
	c, err := e.Server.Connect(name, opts...)
	if err != nil {
		e.tb.Fatal(err)
	}
	return c
}

// Restart restarts the server, or ends the test.
func (e *Env) Restart() {
	e.tb.Helper()
	if err := e.Server.Restart(); err != nil {
		e.tb.Fatal(err)
	}
}

// WaitFor returns as soon as cond holds, and ends the test if it does not hold within d. In a bubble d is virtual time, and
// cond is called when everything else is at rest: it sees no state in the making. Call it from the test's own
// goroutine only, and let cond not wait for anything. In real time, time in which the process stood still does not count.
func (e *Env) WaitFor(d time.Duration, what string, cond func() bool) {
	e.tb.Helper()
	waitFor(e.tb, e.virtual, d, what, cond)
}

func waitFor(tb testing.TB, virtual bool, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	const (
		poll  = 5 * time.Millisecond
		stall = 500 * time.Millisecond // so late a poll is one of a process that stood still
	)
	start := time.Now()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for end := start.Add(d); ; {
		if virtual {
			synctest.Wait()
		}
		asked := time.Now()
		if cond() {
			return
		}
		now := time.Now()
		if !asked.Before(end) {
			tb.Fatalf("natstest: waited %v in vain for: %s", now.Sub(start).Round(time.Millisecond), what)
		}
		<-tick.C
		if late := time.Since(now); late >= stall {
			end = end.Add(late)
		}
	}
}
