package main

import (
	"strings"
	"testing"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// TestRun plays the scene in real time; run itself judges what is read and the lag.
func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "from stream sequence 3 on")
}
