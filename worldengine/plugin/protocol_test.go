package plugin_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

func protocolPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/plugin-protocol.md")
	require.NoError(t, err)
	return string(page)
}

// section returns what stands under a heading of the second level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

func TestProtocol_Members(t *testing.T) {
	t.Parallel()
	text := protocolPage(t)
	for heading, name := range map[string]schemas.Name{
		"The request: command-apply.v1":  schemas.CommandApply,
		"The answer: command-applied.v1": schemas.CommandApplied,
	} {
		source, err := schemas.Source(name)
		require.NoError(t, err)
		var schema struct{ Properties map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(source, &schema))
		require.NotEmpty(t, schema.Properties, name)
		table := section(t, text, heading)
		for member := range schema.Properties {
			require.Contains(t, table, "\n| `"+member+"` | ", name)
		}
	}
}

// A deadline on the wire looks like the one of the page.
func TestProtocol_Deadline(t *testing.T) {
	t.Parallel()
	text := regexp.MustCompile("`deadline` .* as `([^`]*)`").FindStringSubmatch(protocolPage(t))
	require.NotNil(t, text)
	ends, err := time.Parse(time.RFC3339, text[1])
	require.NoError(t, err)
	c := apply.Command{Deadline: ends, Snapshot: new(town.Snapshot), ExpectedSnapshot: new(town.Snapshot)}
	data, err := c.MarshalWire(ends)
	require.NoError(t, err)
	require.Contains(t, string(data), `"deadline":"`+text[1]+`"`)
}

func TestProtocol_Codes(t *testing.T) {
	t.Parallel()
	text := protocolPage(t)
	want := []string{
		string(apply.Applied), string(apply.Refused), string(apply.Busy), string(apply.InProgress),
		string(apply.ReasonPluginRejected), string(apply.ReasonPluginStateInvalid),
		string(apply.ReasonPluginTimeout), string(apply.ReasonGameUnavailable),
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
		FindAllStringSubmatch(section(t, protocolPage(t), "Subjects and the town token"), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		require.Equal(t, wire.TownToken(row[1]), row[2])
	}
}
