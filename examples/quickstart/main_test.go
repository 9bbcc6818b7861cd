package main

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// TestRun plays the whole show in real time: the command of the README works, and nothing of it is left behind.
func TestRun(t *testing.T) {
	var out strings.Builder
	natstest.Fairly(t, func(ctx context.Context) error {
		out.Reset()
		err := run(ctx, &out)
		t.Log("\n" + out.String())
		return err
	})
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "for a terminal of 80 columns: %s", line)
	}
}
