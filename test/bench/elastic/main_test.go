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
	*timingsFlag, *readersFlag, *keysFlag, *paceFlag, *restFlag, *runsFlag = "0.3s/1s/1s", 2, 6, 20, 200*time.Millisecond, 1
	require.NoError(t, run(t.Output()))
}
