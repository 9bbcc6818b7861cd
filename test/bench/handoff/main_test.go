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
	*timingsFlag, *workersFlag, *partitionsFlag, *joinsFlag, *runsFlag = "1s/3s/3s", 2, 300, 1, 1
	*slowFlag = 50 * time.Millisecond
	require.NoError(t, run(t.Output()))
}
