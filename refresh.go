package parti

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/types"
)

// refreshKinds are the errors of a Refresh that callers can act on, by the codes under which the leader's answer names them. The answer's text
// is for people; a leader of an earlier release sends nothing else.
var refreshKinds = map[string]error{
	"source-failed":       types.ErrSourceFailed,
	"invalid-partition":   types.ErrInvalidPartition,
	"duplicate-partition": types.ErrDuplicatePartition,
	"invalid-label":       types.ErrInvalidLabel,
	"no-partitions":       types.ErrNoPartitions,
	"strategy-failed":     types.ErrStrategyFailed,
	"invalid-assignment":  types.ErrInvalidAssignment,
	"payload-too-large":   types.ErrPayloadTooLarge,
	"not-leader":          types.ErrNotLeader,
	"leadership-lost":     types.ErrLeadershipLost,
	"permission":          types.ErrPermission,
	"no-server":           types.ErrNoServer,
	"deadline-exceeded":   context.DeadlineExceeded,
	"stopped":             types.ErrStopped,
}

// refreshCode is the header of an answer that has the codes, one value each.
const refreshCode = "Parti-Error"

// refreshAnswer is what the leader sends about an error; nil: it is done.
func refreshAnswer(err error) *nats.Msg {
	answer := &nats.Msg{Header: nats.Header{}}
	if err == nil {
		return answer
	}
	answer.Data = []byte(err.Error())
	for code, kind := range refreshKinds {
		if errors.Is(err, kind) {
			answer.Header.Add(refreshCode, code)
		}
	}
	return answer
}

// refreshResult is what such an answer says: nil, or an error that is for errors.Is what the leader's was.
func refreshResult(answer *nats.Msg) error {
	codes := answer.Header[refreshCode]
	if len(answer.Data) == 0 && len(codes) == 0 {
		return nil
	}
	err := &leaderError{text: string(answer.Data)}
	for _, code := range codes {
		if kind, known := refreshKinds[code]; known { // else it is a later release's
			err.kinds = append(err.kinds, kind)
		}
	}
	return err
}

// leaderError is an error that the leader has told.
type leaderError struct {
	text  string
	kinds []error
}

func (e *leaderError) Error() string   { return "parti: refresh: the leader reports: " + e.text }
func (e *leaderError) Unwrap() []error { return e.kinds }
