package main

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

// The program works at a tiny size; figures are for those who run it.
func TestProgram(t *testing.T) {
	*workersFlag, *partitionsFlag, *everyFlag, *lengthFlag = 3, 50, 300*time.Millisecond, 600*time.Millisecond
	require.NoError(t, run(t.Output()))
}
