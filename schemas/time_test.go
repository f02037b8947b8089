package schemas_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

func TestUTC_EveryForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-02-16T10:00:00Z":         "2026-02-16T10:00:00Z",
		"2026-02-16T10:00:00.120Z":     "2026-02-16T10:00:00.120Z",
		"2026-02-16t10:00:00.12z":      "2026-02-16T10:00:00.12Z",
		"2026-02-16T10:00:00+00:00":    "2026-02-16T10:00:00Z",
		"2026-02-16T10:00:00.5-00:00":  "2026-02-16T10:00:00.5Z",
		"2016-12-31T23:59:60Z":         "2016-12-31T23:59:59Z",
		"9999-12-31t23:59:60.25+00:00": "9999-12-31T23:59:59.25Z",
	} {
		require.Equal(t, want, schemas.UTC(text))
		request := map[string]any{"from": text}
		require.NoError(t, schemas.Validate(schemas.RunListRequest, request))
	}
	for _, text := range []string{
		"", "2026-02-16", "2026-02-16T10:00:60Z", "2026-02-16T24:00:00Z", "2026-02-16 10:00:00Z",
		"2026-02-16T10:00:00+01:00", "2026-02-16T10:00:00,5Z", "2026-02-16T10:00:00",
	} {
		require.ErrorContains(t, schemas.Validate(schemas.RunListRequest,
			map[string]any{"from": text}), "RFC 3339", text)
	}
	for _, text := range []string{"", "tomorrow", "2026-02-30T10:00:00" + strings.Repeat("0", 3)} {
		require.Equal(t, text, schemas.UTC(text))
	}
}
