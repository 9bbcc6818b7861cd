package main

import (
	"testing"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	natstest.VerifyTestMain(m)
}

// The program works at a tiny size; figures are for those who run it.
func TestProgram(t *testing.T) {
	*messagesFlag, *fewFlag, *manyFlag, *streamsFlag, *readersFlag, *runsFlag = 1000, 8, 100, 4, 2, 1
	require.NoError(t, run(t.Output()))
}
