package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contracts.md has a row for each code that the service answers with, with its status.
func TestErrorsAreListed(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	row := regexp.MustCompile(`(?m)^\| ([0-9]{3}) \| ([^|]*) \|`)
	for _, cells := range row.FindAllStringSubmatch(read(t, "contracts.md"), -1) {
		for _, code := range strings.Split(cells[2], ", ") {
			listed[strings.Trim(code, "` ")] = cells[1]
		}
	}
	service := read(t, "../worldengine/service/errors.go")
	built := regexp.MustCompile(`wireError\{([0-9]{3}), "([A-Z_]+)"`).FindAllStringSubmatch(service, -1)
	require.Greater(t, len(built), 15)
	require.Equal(t, strings.Count(service, "return wireError{"), len(built)+2, "the codes of signals and transitions are not literal")
	for _, code := range built {
		require.Equal(t, code[1], listed[code[2]], code[2])
	}
	for code, status := range map[string]string{
		"INVALID_JSON": "400", "SCHEMA_VALIDATION_FAILED": "400", "PAYLOAD_TOO_LARGE": "413",
		"INVALID_TRANSITION": "409", "ALREADY_PAUSED": "409", "NOT_PAUSED": "409", "RUN_NOT_WAITING": "409",
	} {
		require.Equal(t, status, listed[code], code)
	}
}
