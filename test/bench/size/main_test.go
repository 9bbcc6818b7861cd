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
	*sizesFlag, *smallFlag, *payloadFlag = "1x2000,3x100", 5000, 4<<10
	require.NoError(t, run(t.Output()))
}
