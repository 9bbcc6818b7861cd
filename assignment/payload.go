package assignment

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// The stages at which [FetchAndVerifyCommitPayload] can fail, for errors.Is. Nothing was applied, and all are worth a retry.
var (
	// ErrCommitPayloadFetch: the value, or a piece of it, could not be read.
	ErrCommitPayloadFetch = record.ErrCommitPayloadFetch
	// ErrCommitPayloadDecompress: the stored bytes are damaged, or too large when decompressed.
	ErrCommitPayloadDecompress = record.ErrCommitPayloadDecompress
	// ErrCommitPayloadHashMismatch: the bytes are not those that the address promises.
	ErrCommitPayloadHashMismatch = record.ErrCommitPayloadHashMismatch
	// ErrCommitPayloadDecode: the right bytes cannot be understood; a newer release may have written them.
	ErrCommitPayloadDecode = record.ErrCommitPayloadDecode
	// ErrCommitPayloadDigestMismatch: the partitions are not those that the reference was made for.
	ErrCommitPayloadDigestMismatch = record.ErrCommitPayloadDigestMismatch
)

// FetchAndVerifyCommitPayload returns what a reference of a commit gives to its worker, read from the control bucket opened as
// an ordinary KV bucket, for tools and for clients that do not run a Manager. Errors wrap the sentinel of the stage.
func FetchAndVerifyCommitPayload(ctx context.Context, bucket jetstream.KeyValue, ref types.AssignmentPayloadRef) (types.AssignmentPayload, error) {
	get := func(ctx context.Context, key string) ([]byte, error) {
		e, err := bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, fmt.Errorf("%w: %q", kv.ErrNotFound, key)
		}
		if err != nil {
			return nil, err
		}
		return e.Value(), nil
	}
	return record.FetchAndVerifyCommitPayload(ctx, get, ref)
}
