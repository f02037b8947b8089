package docs_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// under returns what stands under a heading of the second level.
func under(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

func TestProtocol_Members(t *testing.T) {
	t.Parallel()
	text := read(t, "plugin-protocol.md")
	for heading, name := range map[string]schemas.Name{
		"The request: command-apply.v1":  schemas.CommandApply,
		"The answer: command-applied.v1": schemas.CommandApplied,
	} {
		source, err := schemas.Source(name)
		require.NoError(t, err)
		var schema struct{ Properties map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(source, &schema))
		require.NotEmpty(t, schema.Properties, name)
		table := under(t, text, heading)
		for member := range schema.Properties {
			require.Contains(t, table, "\n| `"+member+"` | ", name)
		}
	}
}

func TestProtocol_Codes(t *testing.T) {
	t.Parallel()
	text := read(t, "plugin-protocol.md")
	want := []string{
		string(apply.Applied), string(apply.Refused), string(apply.Busy), string(apply.InProgress),
		string(apply.ReasonPluginRejected), string(apply.ReasonPluginStateInvalid),
		string(apply.ReasonPluginTimeout), string(apply.ReasonPluginUnavailable),
		plugin.ReasonDeadlinePassed, plugin.ReasonOutcomeUnknown,
	}
	for _, binding := range apply.Bindings() {
		want = append(want, string(binding))
	}
	for _, code := range want {
		require.Contains(t, text, "`"+code+"`")
	}
}

func TestProtocol_TownTokens(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `(.*)` \\| `(.*)` \\|$").
		FindAllStringSubmatch(under(t, read(t, "plugin-protocol.md"), "Subjects and the town token"), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		require.Equal(t, wire.TownToken(row[1]), row[2])
	}
}
