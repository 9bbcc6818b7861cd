package assignment

import (
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMonitorNamesAllFaults(t *testing.T) {
	_, err := NewWorkerMonitor(MonitorConfig{})
	require.ErrorIs(t, err, types.ErrInvalidConfig)
	for _, field := range []string{"Heartbeats", "Namespace", "HeartbeatTTL", "RequestTimeout", "Logger"} {
		require.ErrorContains(t, err, "MonitorConfig."+field)
	}
}
