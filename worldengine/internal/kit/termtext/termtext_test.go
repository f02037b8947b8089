package termtext_test

import (
	"os"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/termtext"
)

// The console and handoffctl spell out the same characters.
func TestText_HiddenCharacters(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../testdata/hidden-characters.json")
	require.NoError(t, err)
	var cases []struct {
		Text  string `json:"text"`
		Shown string `json:"shown"`
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		require.Equal(t, c.Shown == c.Text, termtext.Text(c.Text) == c.Text, "%q", c.Text)
	}
	for text, want := range map[string]string{
		"": `""`, "oak ": `"oak "`, "oak\u00a0": `"oak\u00a0"`, "\u202eoak": `"\u202eoak"`,
		"o\tk\"\\": `"o\tk\"\\"`, "\U000e0041": `"\U000e0041"`, "\u3164": `"\u3164"`,
		`o"\k`: `o"\k`,
	} {
		require.Equal(t, want, termtext.Text(text))
	}
}
