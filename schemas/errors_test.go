package schemas_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

func TestValidationError_Error(t *testing.T) {
	t.Parallel()
	v := func(i int) schemas.Violation { return violation(fmt.Sprint("/", i), "is wrong") }
	invalid := func(v ...schemas.Violation) *schemas.ValidationError {
		return schemas.Invalid(schemas.Proposal, v...)
	}
	const first = "schemas: proposal.v2: /0: is wrong"
	for want, err := range map[string]*schemas.ValidationError{
		first:                                  invalid(v(0)),
		first + "; /1: is wrong":               invalid(v(0), v(1)),
		first + "; /1: is wrong; /2: is wrong": invalid(v(0), v(1), v(2)),
		first + "; /1: is wrong; /2: is wrong; and 1 more": invalid(v(0), v(1), v(2), v(3)),
		"schemas: proposal.v2: is wrong": invalid(
			violation("", "is wrong")),
		"schemas: proposal.v2: SCHEMA_VALIDATION_FAILED":          invalid(),
		"schemas: must be a JSON value but is empty":              decodeError(t, ""),
		"schemas: /a: is a second member of this name, at byte 7": decodeError(t, `{"a":1,"a":2}`),
	} {
		require.EqualError(t, err, want)
	}
	require.Equal(t, schemas.CodeSchemaValidation, schemas.Invalid(schemas.Proposal).Code)
}

func decodeError(t testing.TB, text string) *schemas.ValidationError {
	_, err := schemas.Decode([]byte(text), schemas.Limits{})
	return refusal(t, err)
}

func TestPointer(t *testing.T) {
	t.Parallel()
	require.Equal(t, "", schemas.Pointer())
	require.Equal(t, "/", schemas.Pointer(""))
	require.Equal(t, "/args/a~1b~0c/2/~01", schemas.Pointer("args", "a/b~c", 2, "~1"))
	require.Equal(t, "/日本/3", schemas.Pointer("日本", uint8(3)))
}

func TestUnder(t *testing.T) {
	t.Parallel()
	_, part := schemas.Parse(schemas.TownGetRequest, []byte(`{}`), schemas.Limits{})
	whole := refusal(t, schemas.Nest(schemas.TownPutRequest, part, "snapshots", 2))
	require.Equal(t, schemas.TownPutRequest, whole.Schema)
	require.Equal(t, []schemas.Violation{violation("/snapshots/2/townId", "is required")},
		whole.Violations)
	require.Equal(t, "/townId", refusal(t, part).Violations[0].Path, "the part stays as it is")
	require.Equal(t, schemas.ErrUnknownSchema,
		schemas.Nest(schemas.TownPutRequest, schemas.ErrUnknownSchema, "a"))
}

func TestMembers(t *testing.T) {
	t.Parallel()
	m := schemas.Members{Schema: "a-file"}
	require.NoError(t, m.Err())
	m.Add("/y", "must be %s", "an object")
	m.Add("/x", "is required")
	found := refusal(t, m.Err())
	require.Equal(t, schemas.Name("a-file"), found.Schema)
	require.Equal(t, []schemas.Violation{
		violation("/x", "is required"), violation("/y", "must be an object"),
	}, found.Violations)
}
