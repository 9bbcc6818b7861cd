package main

import (
	"context"
	"strings"
	"testing"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// TestRun plays the scene in real time; run itself judges what is read and the lag.
func TestRun(t *testing.T) {
	var out strings.Builder
	natstest.Fairly(t, func(ctx context.Context) error {
		out.Reset()
		err := run(ctx, &out)
		t.Log("\n" + out.String())
		return err
	})
	require.Contains(t, out.String(), "from stream sequence 3 on")
}
