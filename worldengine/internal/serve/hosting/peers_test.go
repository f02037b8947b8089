package hosting

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// Each error code that only the verbs about worlds have, has a header between servers: without one the client of
// another server would get INTERNAL.
func TestFailureHeaders_EveryCode(t *testing.T) {
	t.Parallel()
	var headers, codes []string
	for _, f := range failureHeaders {
		headers = append(headers, f.header)
		answer := &nats.Msg{Header: nats.Header{}}
		addFailure(answer, fmt.Errorf("%w: the reason", f.err))
		err := failureIn(answer, "")
		require.ErrorIs(t, err, f.err)
		require.EqualError(t, err, f.err.Error()+": the reason")
	}
	about := []wire.Verb{wire.WorldsList, wire.WorldsCreate, wire.WorldsRemove}
	isOther := func(verb wire.Verb) bool { return !slices.Contains(about, verb) }
	for _, spec := range protocol.Errors() {
		if spec.Verbs != nil && !slices.ContainsFunc(spec.Verbs, isOther) {
			codes = append(codes, textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(string(spec.Code), "_", "-")))
		}
	}
	require.ElementsMatch(t, codes, headers)
	answer := &nats.Msg{Header: nats.Header{}}
	addFailure(answer, errors.New("no header names this"))
	require.EqualError(t, failureIn(answer, "it failed"), "hosting: it failed: no header names this")
}
