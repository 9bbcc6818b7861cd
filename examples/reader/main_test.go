package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// The program reads what it has published, in order, and ends in good order when it is interrupted.
func TestRun(t *testing.T) {
	env := natstest.Single(t, natstest.WithTCP())
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	var events []string // of one order, so of one call at a time
	err := run(ctx, env.Server.URL(), func(ctx context.Context, m consumer.Message) error {
		events = append(events, m.Headers.Get(consumer.HeaderKey)+" "+string(m.Data))
		if len(events) == 3 {
			stop()
		}
		return handle(ctx, m)
	})
	require.NoError(t, err)
	require.Equal(t, []string{"order-17 placed", "order-17 paid", "order-17 shipped"}, events)
}

// CONSUMER.md shows this program, word for word.
func TestDocumented(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/CONSUMER.md")
	require.NoError(t, err)
	require.Contains(t, string(doc), "\n```go\n"+string(program)+"```\n")
}
