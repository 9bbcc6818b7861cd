//go:build unix

package natstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing is a test that notes how it ended.
type failing struct {
	testing.TB
	fatal string
}

func (f *failing) Helper()             {}
func (f *failing) Logf(string, ...any) {}
func (f *failing) Fatal(args ...any) {
	f.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func fairly(t *testing.T, scene func(ctx context.Context) error) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Fairly(f, scene)
	}()
	<-done
	return f.fatal
}

// A scene that fails is played again only if the process was stopped meanwhile.
func TestFairly(t *testing.T) {
	calls, wrong := 0, errors.New("wrong")
	require.Empty(t, fairly(t, func(context.Context) error {
		if calls++; calls > 1 {
			return nil
		}
		pid := os.Getpid()
		require.NoError(t, exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %d; sleep 1.5; kill -CONT %d", pid, pid)).Run())
		return wrong
	}))
	require.Equal(t, 2, calls)

	calls = 0
	stalled := watchStalls()
	require.Equal(t, "wrong", fairly(t, func(context.Context) error { calls++; return wrong }))
	if stalled() < unfair/2 {
		require.Equal(t, 1, calls, "the process did not stand still")
	}
}
