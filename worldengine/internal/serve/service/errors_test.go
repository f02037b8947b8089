package service

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// A reply has the error's own words, with its places, if the client caused the error; the words of
// the server's trouble never leave it.
func TestErrorReply_Texts(t *testing.T) {
	t.Parallel()
	secret := errors.New("10.0.0.7: a detail for the log")
	for _, c := range []struct {
		err     error
		status  string
		code    wire.Code
		pause   string
		message string // a part of it
		details int
	}{
		{invalidRequest(schemas.CodePayloadTooLarge, "has 9 bytes"), "413", wire.CodePayloadTooLarge, "", "9 bytes", 1},
		{&town.ConflictError{Expected: "a", Actual: "b"}, "409", wire.CodeSnapshotConflict,
			"", "is b, not the expected a", 0},
		{new(engine.Signal).RefusedBy(&approval.SignalRefusal{Code: wire.CodeNotPaused,
			Message: "it runs"}), "409", wire.CodeNotPaused, "", "it runs", 0},
		{&runlog.TransitionError{Index: 3, AttemptedState: "COMPLETED"}, "409",
			wire.CodeInvalidTransition, "", "COMPLETED", 1},
		{fmt.Errorf("%w: %w", commitlog.ErrLogUnavailable, secret), "503",
			wire.CodeLogUnavailable, "1000", "send the same bytes again", 0},
		{fmt.Errorf("%w: %w: %w", commitlog.ErrLogUnavailable, commitlog.ErrLogLost, secret), "503",
			wire.CodeLogUnavailable, "1000", "an operator has to put the newer log back", 0},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, secret), "503",
			wire.CodeLogUnavailable, "1000", "send the same bytes again", 0},
		{new(engine.Signal).RefusedBy(&approval.SignalRefusal{Code: "UNHEARD_OF",
			Message: secret.Error()}), "500", wire.CodeInternal, "", "its log", 0},
		{secret, "500", wire.CodeInternal, "", "its log", 0},
	} {
		msg := failureOf(fmt.Errorf("somewhere: %w", c.err)).reply()
		var body messages.Error
		require.NoError(t, json.Unmarshal(msg.Data, &body))
		require.EqualValues(t, c.code, body.Error.Code)
		require.Equal(t, c.status, msg.Header.Get(wire.ErrorCodeHeader), c.code)
		require.Equal(t, c.pause, msg.Header.Get(wire.RetryAfterHeader), c.code)
		require.Contains(t, body.Error.Message, c.message)
		require.Contains(t, msg.Header.Get(wire.ErrorHeader), c.message)
		require.Len(t, body.Error.Details, c.details, c.code)
		require.NotContains(t, string(msg.Data), "10.0.0.7")
	}
}
