package natstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A goroutine that takes longer than goleak's own patience is none that leaks; one that stays is.
func TestLeaked(t *testing.T) {
	end := make(chan struct{})
	done := make(chan struct{})
	go func() { <-end; close(done) }()
	require.ErrorContains(t, leaked(time.Second), "TestLeaked")
	time.AfterFunc(2*time.Second, func() { close(end) })
	require.NoError(t, leaked(leakPatience))
	<-done
}
