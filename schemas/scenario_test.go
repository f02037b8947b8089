package schemas_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt anew")

// TestScenarios reads the inputs of each file of testdata. A line that begins with "> " is an input,
// the lines with "< " behind it are its violations, or "valid"; other lines are prose. Inputs:
//
//	> decode TEXT: a text in Go's quotes
//	> SCHEMA POINTER VALUE: the first example of a schema, with one place replaced by a JSON value, or
//	  "removed"; the pointer of the whole is "-"
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			got := ""
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, "< ") {
					continue
				}
				got += line
				if input, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "> "); ok {
					got += verdict(t, input)
				}
			}
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(data), got)
		})
	}
}

// verdict returns the violations of an input, a line each.
func verdict(t *testing.T, input string) string {
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
		return "< valid\n"
	}
	ve, said := refusal(t, err), ""
	require.Equal(t, code, ve.Code)
	require.Equal(t, schema, ve.Schema)
	for _, v := range ve.Violations {
		said += "< " + strings.TrimSpace(v.Path+" "+v.Message) + "\n"
	}
	return said
}
