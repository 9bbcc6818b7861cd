package fence_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// A bucket that is full refuses, at once and for certain.
func TestKVFullBucket(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		s, err := makeSink(t.Context(), env.Connect("a"), jetstream.KeyValueConfig{MaxBytes: 2000})
		require.NoError(t, err)
		began := time.Now()
		_, err = s.Put(t.Context(), "p", make([]byte, 3000), 1)
		require.NotErrorIs(t, err, types.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "maximum bytes exceeded: the bucket is full: raise the limits of its stream")
		require.Less(t, time.Since(began), time.Second)
		_, err = s.Put(t.Context(), "p", []byte("small"), 1)
		require.NoError(t, err)
	})
}

// answering answers every publication with an error.
type answering struct {
	jetstream.JetStream
	err *jetstream.APIError
}

func (a answering) PublishMsg(context.Context, *nats.Msg, ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return nil, a.err
}

// Of the answers that say 503, those that mean for certain that nothing was stored are told from the others.
func TestKVAnswersOf503(t *testing.T) {
	for _, c := range []struct {
		code        jetstream.ErrorCode
		description string
		is          error
		says        string
	}{
		{10023, "insufficient resources", nil, "storage for JetStream is full"},
		{10077, "maximum messages exceeded", nil, "the bucket is full"},
		{10077, "maximum messages per subject exceeded", nil, "the bucket is full"},
		{10077, "message too large", types.ErrPayloadTooLarge, ""},
		{10077, "store is closed", types.ErrOutcomeUnknown, "store is closed"},
		{10063, "expected last sequence", types.ErrOutcomeUnknown, ""},
	} {
		natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
			client := env.Connect("a")
			newSink(t, client)
			s, err := fence.OpenKV(t.Context(), answering{client.JS(), &jetstream.APIError{Code: 503, ErrorCode: c.code, Description: c.description}}, "sink")
			require.NoError(t, err)
			_, err = s.Put(within(t, 3*time.Second), "p", []byte("v"), 1)
			require.ErrorContains(t, err, c.says)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.is != types.ErrOutcomeUnknown {
				require.NotErrorIs(t, err, types.ErrOutcomeUnknown)
			}
		})
	}
}
