package schemas_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

// Each message of the document has examples, which fit the document's own schemas.
func TestAsyncAPI_Examples(t *testing.T) {
	t.Parallel()
	api := schemastest.ReadAsyncAPI(t)
	require.NotEmpty(t, api.Components.Messages)
	for name, message := range api.Components.Messages {
		require.NotEmpty(t, message.Examples, name)
		for _, example := range message.Examples {
			require.NoError(t, api.Payload(name).Validate(example.Payload), "%s: %s", name, example.Name)
			if example.Headers != nil {
				require.NoError(t, api.Headers(name).Validate(example.Headers), "%s: %s", name, example.Name)
			}
		}
	}
}

// The schemas of the document accept and refuse the same payloads as the ones of this package: every example, and every
// example without a member that is required.
func TestAsyncAPI_Schemas(t *testing.T) {
	t.Parallel()
	api := schemastest.ReadAsyncAPI(t)
	refused := 0
	for _, n := range schemas.Names() {
		schema := api.Schema(string(n))
		for _, example := range document(t, n)["examples"].([]any) {
			cases := []map[string]any{example.(map[string]any)}
			for _, member := range slices.Sorted(maps.Keys(cases[0])) {
				less := maps.Clone(cases[0])
				delete(less, member)
				cases = append(cases, less)
			}
			for _, payload := range cases {
				err := schemas.Validate(n, payload)
				require.Equal(t, err == nil, schema.Validate(payload) == nil, "%s: %v: %v", n, payload, err)
				if err != nil {
					refused++
				}
			}
		}
	}
	require.Greater(t, refused, 100)
}

func TestAsyncAPI_Text(t *testing.T) {
	t.Parallel()
	require.True(t, json.Valid([]byte(schemas.AsyncAPI())))
	require.NotContains(t, schemas.AsyncAPI(), ".schema.json", "references within the document alone")
}
