package main

import (
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	serveIfAsked()
	natstest.VerifyTestMain(m)
}

// The program works at a tiny size; figures are for those who run it.
func TestProgram(t *testing.T) {
	*workersFlag, *partitionsFlag, *manyFlag, *runsFlag = "2", 5, 100, 1
	*fenceFlag, *restFlag = "0.3s/3s/3s", 10*time.Millisecond
	require.NoError(t, run(t.Output()))
}
