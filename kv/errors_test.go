package kv

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// The codes of this package are the server's, under the names that they were looked up by, and mean what the table says.
func TestCodesAreTheServers(t *testing.T) {
	for id, want := range map[server.ErrorIdentifier]struct {
		code jetstream.ErrorCode
		kind error
	}{
		server.JSStreamWrongLastSequenceErrF:             {jetstream.JSErrCodeStreamWrongLastSequence, ErrConflict},
		server.JSStreamWrongLastSequenceConstantErr:      {codeWrongLastSequenceInFlight, ErrConflict},
		server.JSStreamExpectedLastSeqPerSubjectNotReady: {codeSubjectNotReady, ErrUnavailable},
		server.JSInsufficientResourcesErr:                {codeInsufficientResources, nil},
		server.JSAccountResourcesExceededErr:             {codeAccountLimit, nil},
		server.JSStreamMessageExceedsMaximumErr:          {codeMsgTooLarge, types.ErrPayloadTooLarge},
		server.JSMessageTTLDisabledErr:                   {codeMsgTTLDisabled, types.ErrForeignBucket},
		server.JSAtomicPublishDisabledErr:                {codeBatchDisabled, types.ErrForeignBucket},
		server.JSAtomicPublishIncompleteBatchErr:         {codeBatchIncomplete, ErrUnavailable},
		server.JSAtomicPublishTooManyInflight:            {codeTooManyBatches, ErrUnavailable},
		server.JSStreamTooManyRequests:                   {10167, ErrUnavailable},
		server.JSStreamSealedErr:                         {10109, nil},
		server.JSStreamSequenceNotMatchErr:               {10063, types.ErrOutcomeUnknown},
		server.JSClusterNotLeaderErr:                     {10009, types.ErrOutcomeUnknown},
		server.JSClusterNotAvailErr:                      {10008, types.ErrOutcomeUnknown},
	} {
		e, known := server.ApiErrors[id]
		require.True(t, known, want.code)
		require.EqualValues(t, e.ErrCode, want.code)
		got := apiKind(&jetstream.APIError{Code: e.Code, ErrorCode: want.code, Description: e.Description})
		require.Equal(t, want.kind, got, "%d %s", want.code, e.Description)
	}
	for err, kind := range map[error]error{
		server.ErrMaxMsgs: nil, server.ErrMaxBytes: nil, server.ErrMaxMsgsPerSubject: nil, server.ErrMsgTooLarge: types.ErrPayloadTooLarge,
		server.ErrStoreClosed: types.ErrOutcomeUnknown, server.ErrStoreMsgNotFound: types.ErrOutcomeUnknown,
	} {
		e := server.NewJSStreamStoreFailedError(err)
		require.EqualValues(t, codeStoreFailed, e.ErrCode)
		require.Equal(t, kind, apiKind(&jetstream.APIError{Code: e.Code, ErrorCode: codeStoreFailed, Description: e.Description}), err)
	}
}

// Whatever else the server may answer with is never taken for a refusal where it says that something is wrong with the server.
func TestUnlistedServerErrorsAreUnknown(t *testing.T) {
	listed := map[jetstream.ErrorCode]bool{
		codeInsufficientResources: true, codeStoreFailed: true, codeSubjectNotReady: true,
		jetstream.JSErrCodeJetStreamNotEnabled: true, jetstream.JSErrCodeJetStreamNotEnabledForAccount: true,
	}
	looked := 0
	for _, e := range server.ApiErrors {
		code := jetstream.ErrorCode(e.ErrCode)
		if e.Code < 500 || listed[code] {
			continue
		}
		looked++
		require.Equal(t, types.ErrOutcomeUnknown, apiKind(&jetstream.APIError{Code: e.Code, ErrorCode: code, Description: e.Description}), e.Description)
	}
	require.Greater(t, looked, 20)
}
