package assignment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// While there is nobody to give anything to, requests that nobody waits for any more do not pile up; the others are kept.
func TestAbandonedRequestsDoNotPileUp(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	waits := &request{ctx: context.Background(), ready: true}
	unread := &request{ctx: over}
	l := &loop{requests: []*request{{ctx: over, ready: true}, waits, {ctx: over, ready: true}, unread}}
	require.False(t, l.takeManual(&sitting{}))
	require.Equal(t, []*request{waits, unread}, l.requests)
}
