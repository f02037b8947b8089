package schemas_test

import (
	"encoding/json"
	"flag"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/schemas/schemastest"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt anew")

// TestScenarios plays testdata. The output of an input are its violations, or "valid". Inputs:
//
//	> decode TEXT: a text in Go's quotes
//	> SCHEMA POINTER VALUE: the first example of a schema, with one place replaced by a JSON value, or
//	  "removed"; the pointer of the whole is "-"
func TestScenarios(t *testing.T) {
	t.Parallel()
	schemastest.Play(t, "testdata/*.txt", *rewrite, func(t *testing.T) func(string) []string {
		return func(input string) []string { return verdict(t, input) }
	})
}

// verdict returns the violations of an input.
func verdict(t *testing.T, input string) (said []string) {
	t.Helper()
	words := strings.SplitN(input, " ", 3)
	var err error
	var code schemas.Code
	var schema schemas.Name
	if words[0] == "decode" {
		text, quoteErr := strconv.Unquote(strings.Join(words[1:], " "))
		require.NoError(t, quoteErr, input)
		_, err = schemas.Parse(schemas.Error, []byte(text), schemas.Limits{})
		code, schema = schemas.CodeInvalidJSON, schemas.Error
		_, alone := schemas.Decode([]byte(text), schemas.Limits{})
		require.Equal(t, refusal(t, err).Violations, refusal(t, alone).Violations)
		require.Empty(t, refusal(t, alone).Schema)
	} else {
		code, schema = schemas.CodeSchemaValidation, schemas.Name(words[0])
		var value any
		if words[2] == "removed" {
			value = remove
		} else {
			require.NoError(t, json.Unmarshal([]byte(words[2]), &value), input)
		}
		err = schemas.Validate(schema, edit(example(t, schema), strings.Trim(words[1], "-"), value))
	}
	if err == nil {
		return []string{"valid"}
	}
	ve := refusal(t, err)
	require.Equal(t, code, ve.Code)
	require.Equal(t, schema, ve.Schema)
	for _, v := range ve.Violations {
		said = append(said, strings.TrimSpace(v.Path+" "+v.Message))
	}
	return said
}
