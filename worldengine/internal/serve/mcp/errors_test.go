package mcp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
)

// The error of a read says once that nothing was proposed, and leaves no doubt of its own.
func TestNothingProposed(t *testing.T) {
	t.Parallel()
	require.NoError(t, nothingProposed(nil))
	late := &client.UnavailableError{Code: "TIMEOUT", Cause: context.DeadlineExceeded,
		Message: "no answer to town.get within 25s; the request may have been carried out"}
	err := nothingProposed(nothingProposed(late))
	require.EqualError(t, err, "TIMEOUT: no answer to town.get within 25s; nothing was proposed by this call")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
