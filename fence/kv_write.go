package fence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

const (
	// writeLimit bounds a write whose context has no deadline.
	writeLimit = 10 * time.Second
	// attemptLimit bounds one call to the server, so that a lost answer leaves time to find out.
	attemptLimit = 2 * time.Second
	// firstWait and lastWait bound the wait before the next attempt: it doubles, and is random.
	firstWait = 2 * time.Millisecond
	lastWait  = 250 * time.Millisecond
)

// Error codes of the server that the client does not name.
const (
	// codeInFlight is what replicated streams answer while another write on the subject is in flight.
	codeInFlight jetstream.ErrorCode = 10164
	// codeNoStorage: a limit of the server's storage was reached.
	codeNoStorage jetstream.ErrorCode = 10023
	// codeNotTaken: the store did not take the message. The description says why.
	codeNotTaken jetstream.ErrorCode = 10077
)

// attempt is one message, perhaps sent several times: always at the same revision and with the same nonce, so it is stored once at
// most.
type attempt struct {
	msg    *nats.Msg
	nonce  string
	over   Entry // what it was made to be written over
	stored Entry // what it stores
	lost   error // why the outcome of an earlier sending is not known; nil: it was not sent, or is known not to be stored
}

// write does what the methods have in common.
func (k *KV) write(ctx context.Context, key string, epoch int64, change func(Entry) (Entry, error)) (Entry, error) {
	if err := errors.Join(checkEpoch(epoch), checkKey(key)); err != nil {
		return Entry{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeLimit)
		defer cancel()
	}
	var a attempt
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		stored, done, err := k.step(ctx, key, epoch, change, &a)
		if done {
			return stored, err
		}
		if err := backoff.Sleep(ctx, wait/2+rand.N(wait/2)); err != nil {
			return Entry{}, k.givenUp(key, &a, err)
		}
	}
}

func (k *KV) givenUp(key string, a *attempt, cause error) error {
	if a.lost != nil {
		return fmt.Errorf("%w: write %q: %w: %w", types.ErrOutcomeUnknown, key, cause, a.lost)
	}
	return fmt.Errorf("fence: %q not written: %w", key, cause)
}

// step looks at the key and sends once. It reports whether that decided the write.
func (k *KV) step(ctx context.Context, key string, epoch int64, change func(Entry) (Entry, error), a *attempt) (Entry, bool, error) {
	call, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	now, err := k.read(call, key)
	switch {
	case err != nil && !k.js.Conn().IsClosed() && (a.lost != nil || call.Err() != nil && ctx.Err() == nil):
		return Entry{}, false, nil // no answer in time, or what was sent is still to be found out
	case err != nil:
		return Entry{}, true, errors.Join(err, k.unresolved(key, a))
	case a.lost != nil && now.nonce == a.nonce:
		a.stored.Revision = now.Revision
		return a.stored, true, nil
	case a.lost != nil && now.Revision < a.over.Revision:
		return Entry{}, false, nil // older than what was seen before
	case now.Epoch > epoch:
		return Entry{}, true, errors.Join(&StaleError{Subject: key, Epoch: epoch, Highest: now.Epoch}, k.unresolved(key, a))
	case a.lost != nil && now.Revision > a.over.Revision:
		return Entry{}, true, k.unresolved(key, a) // somebody wrote on top of it, or instead of it
	case a.lost == nil:
		if *a, err = k.compose(key, epoch, now, change); err != nil {
			return Entry{}, true, err
		}
	}
	return k.send(call, key, a)
}

// unresolved is nil unless something was sent of which nobody can say any more whether it was stored.
func (k *KV) unresolved(key string, a *attempt) error {
	if a.lost == nil {
		return nil
	}
	return fmt.Errorf("%w: write %q: other writes came after it: %w", types.ErrOutcomeUnknown, key, a.lost)
}

// compose makes the message that writes over what is stored now.
func (k *KV) compose(key string, epoch int64, now Entry, change func(Entry) (Entry, error)) (attempt, error) {
	next, err := change(now)
	if err != nil {
		return attempt{}, err
	}
	next.Epoch, next.nonce = epoch, nuid.Next()
	msg := nats.NewMsg(k.prefix + key)
	msg.Data = next.Value
	msg.Header.Set(HeaderEpoch, strconv.FormatInt(epoch, 10))
	msg.Header.Set(headerNonce, next.nonce)
	if !next.Exists {
		msg.Header.Set(headerOp, "DEL")
	}
	return attempt{msg: msg, nonce: next.nonce, over: now, stored: next}, nil
}

// send sends the attempt once. A conflict decides nothing by itself: the key is to be looked at again.
func (k *KV) send(ctx context.Context, key string, a *attempt) (Entry, bool, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, false, nil
	}
	ack, err := k.js.PublishMsg(ctx, a.msg, jetstream.WithExpectLastSequencePerSubject(a.over.Revision), jetstream.WithRetryAttempts(0))
	if err == nil {
		a.stored.Revision = ack.Sequence
		return a.stored, true, nil
	}
	var api *jetstream.APIError
	answered := errors.As(err, &api)
	switch {
	case answered && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == codeInFlight):
		return Entry{}, false, nil
	case answered && definite(api), errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		if a.lost != nil {
			return Entry{}, false, nil // this sending was refused; an earlier one may have been stored
		}
		return Entry{}, true, refused(key, err)
	}
	a.lost = err
	return Entry{}, false, nil
}

// definite reports whether the server says for certain that it did not store the message. What says 500 or more may have been stored,
// but for two codes that are 503 in name only: limits are looked at before anything is stored. Package kv has the same rule in its
// errors.go; this package does not import it, and both are to be changed together.
func definite(api *jetstream.APIError) bool {
	switch api.ErrorCode {
	case codeNoStorage:
		return true
	case codeNotTaken:
		switch api.Description {
		case "maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded", tooLarge:
			return true
		}
		return false // a store that was closed meanwhile: other replicas may have it
	}
	return api.Code < 500
}

// tooLarge is the description of codeNotTaken for a message that the store does not take because of its size.
const tooLarge = "message too large"

// refused is the error of a write of which the server, or the client, stored nothing.
func refused(key string, err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: write %q: %w", types.ErrPayloadTooLarge, key, err)
	case !errors.As(err, &api):
	case api.ErrorCode == codeNotTaken && api.Description == tooLarge:
		return fmt.Errorf("%w: write %q: %w", types.ErrPayloadTooLarge, key, err)
	case api.ErrorCode == codeNotTaken:
		return fmt.Errorf("fence: %q not written: %w: the bucket is full: raise the limits of its stream, or take them away", key, err)
	case api.ErrorCode == codeNoStorage:
		return fmt.Errorf("fence: %q not written: %w: the server's storage for JetStream is full: make room, or raise its limit", key, err)
	}
	return fmt.Errorf("fence: %q not written: %w", key, err)
}
