package assignment

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// Of a source that does not answer the log says whether there is a list to go on with.
func TestLogOfASourceThatFails(t *testing.T) {
	var log natstest.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	v := newSourceView(&Config{SourceInterval: time.Minute})
	look := func(err error) {
		before := v.err
		v.take(lookup{list: sourceList{partitions: []types.Partition{types.NewPartition("a")}}, err: err}, true, false, false, time.Minute)
		v.log(logger, before)
	}
	look(errors.New("no bucket"))
	require.Contains(t, log.String(), "there is no list yet")
	require.NotContains(t, log.String(), "stays in force")
	look(nil)
	look(errors.New("no bucket"))
	require.Contains(t, log.String(), "the last good list stays in force")
}
