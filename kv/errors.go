package kv

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
)

var (
	// ErrConflict: the key is not at the expected revision; nothing was written.
	ErrConflict = errors.New("kv: revision conflict")
	// ErrNotFound: neither a value nor a marker is stored under the key.
	ErrNotFound = errors.New("kv: key not found")
	// ErrUnavailable: the bucket's stream did not take part: it is gone, has no leader, or is overloaded. Nothing was written.
	// [Store.Identity] tells a stream that is gone from one that will be back.
	ErrUnavailable = errors.New("kv: bucket unavailable")
)

// Error codes of the server that the clients do not name.
const (
	// Replicated streams answer it instead of 10071 while another write on the subject is in flight.
	codeWrongLastSequenceInFlight jetstream.ErrorCode = 10164

	// A limit of the server's storage was reached. The message was looked at and not stored.
	codeInsufficientResources jetstream.ErrorCode = 10023
	// The store did not take the message. Only the description says why, see storeFailed.
	codeStoreFailed jetstream.ErrorCode = 10077
	// A write on the subject is in flight whose revision is not known yet.
	codeSubjectNotReady jetstream.ErrorCode = 10163

	codeAccountLimit    jetstream.ErrorCode = 10002
	codeMsgTooLarge     jetstream.ErrorCode = 10054
	codeMsgTTLDisabled  jetstream.ErrorCode = 10166
	codeBatchDisabled   jetstream.ErrorCode = 10174
	codeBatchIncomplete jetstream.ErrorCode = 10176
	codeTooManyBatches  jetstream.ErrorCode = 10210
	codeTooManyRequests                     = 429 // of HTTP's kind
)

// writeError sorts the error of a write into conflict, refused (nothing was written) and unknown.
func writeError(op, key string, err error) error {
	if err == nil {
		return nil
	}
	wrap := func(kind error) error { return fmt.Errorf("%w: %s %q: %w", kind, op, key, err) }
	var api *jetstream.APIError
	if errors.As(err, &api) {
		if kind := apiKind(api); kind != nil {
			return wrap(kind)
		}
		return fmt.Errorf("kv: %s %q refused: %w%s", op, key, err, roomAdvice(api))
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return wrap(types.ErrPayloadTooLarge)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return wrap(ErrUnavailable)
	case errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("kv: %s %q refused: %w", op, key, err)
	}
	return wrap(types.ErrOutcomeUnknown)
}

// apiKind returns what the server's answer to a write means, nil for a refusal of no particular kind. These are the codes that a server
// answers a publication with, and 503 for a few of them is no more than a name: whether the message can have been stored is decided
// by where in the server the answer comes from. What is not listed and says 500 or more may have been stored.
func apiKind(api *jetstream.APIError) error {
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, codeWrongLastSequenceInFlight:
		return ErrConflict
	case codeMsgTooLarge:
		return types.ErrPayloadTooLarge
	case codeMsgTTLDisabled, codeBatchDisabled: // recreated by somebody else, or changed
		return types.ErrForeignBucket
	case codeBatchIncomplete, codeTooManyBatches: // the stream's leader changed in the midst of it; too many at once
		return ErrUnavailable
	case codeSubjectNotReady:
		return ErrUnavailable
	case codeInsufficientResources: // looked at before anything is stored or proposed
		return nil
	case codeStoreFailed:
		return storeFailed(api.Description)
	case jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return types.ErrJetStreamDisabled
	}
	switch {
	case api.Code == codeTooManyRequests:
		return ErrUnavailable
	case api.Code >= 500: // e.g. 10063, a replica that is out of step: others may have stored it
		return types.ErrOutcomeUnknown
	}
	return nil
}

// storeFailed tells the limits of a stream, which the server checks before it stores anything, from a store that was closed while a
// replicated write was applied: the other replicas have it.
func storeFailed(description string) error {
	switch description {
	case "maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded":
		return nil
	case "message too large":
		return types.ErrPayloadTooLarge
	}
	return types.ErrOutcomeUnknown
}

// roomAdvice says what to do about a refusal because something is full.
func roomAdvice(api *jetstream.APIError) string {
	switch api.ErrorCode {
	case codeStoreFailed:
		return ": the bucket is full: raise the limits of its stream, or take them away"
	case codeInsufficientResources:
		return ": the server's storage for JetStream is full: make room, or raise its limit"
	case codeAccountLimit:
		return ": the account's storage for JetStream is full: make room, or raise its limit"
	}
	return ""
}

// readError names the error of a read.
func readError(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %q", ErrNotFound, key)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled): // what an API request without an answerer becomes
		return fmt.Errorf("%w: %s %q: %w", ErrUnavailable, op, key, err)
	}
	return fmt.Errorf("kv: %s %q: %w", op, key, err)
}

// IsConflict reports whether the write was refused because the key is at another revision.
func IsConflict(err error) bool { return errors.Is(err, ErrConflict) }

// IsUnknown reports whether the write may or may not have landed.
func IsUnknown(err error) bool { return errors.Is(err, types.ErrOutcomeUnknown) }

// IsTimeout reports whether the error is the end of a deadline or of a connection rather than an answer.
func IsTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionClosed)
}
