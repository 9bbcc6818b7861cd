package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// slowly returns the address of a proxy to the server that lets a connection wait for d before anything passes.
func slowly(t *testing.T, server string, d time.Duration) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer near.Close()
				time.Sleep(d)
				far, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer far.Close()
				all.Go(func() { _, _ = io.Copy(far, near); far.Close() })
				_, _ = io.Copy(near, far)
			})
		}
	})
	return l.Addr().String()
}

// -timeout is for connecting too, where nats.go alone would give up after 2 s.
func TestConnectingTakesAsLongAsItMay(t *testing.T) {
	natstest.Long(t)
	b := newBench(t)
	addr := slowly(t, strings.TrimPrefix(b.Server.URL(), "nats://"), 2500*time.Millisecond)
	for timeout, want := range map[string]int{"1m": exitNoGroup, "1s": exitFailed} {
		var out, errs natstest.Buffer
		require.Equal(t, want, run(t.Context(), []string{"inspect", "nothing", "-server", addr, "-timeout", timeout}, &out, &errs), errs.String())
	}
}
