package approvals_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/approvals"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	change := func(path, from, to string) approvals.Change {
		c := approvals.Change{Path: path}
		if from != "" {
			c.From = []byte(from)
		}
		if to != "" {
			c.To = []byte(to)
		}
		return c
	}
	for _, row := range []struct {
		before, after string
		want          []approvals.Change
	}{
		{`{"a":1}`, `{"a":1.0}`, nil},
		{`{"a":1,"b":{"c":2}}`, `{"b":{"c":3},"d":null}`, []approvals.Change{
			change("/a", "1", ""), change("/b/c", "2", "3"), change("/d", "", "null")}},
		{`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":3}]}`, []approvals.Change{change("/a/1/b", "2", "3")}},
		{`{"a":[1,2]}`, `{"a":[1]}`, []approvals.Change{change("/a", "[1,2]", "[1]")}},
		{`{"a":{"b":1}}`, `{"a":null}`, []approvals.Change{change("/a", `{"b":1}`, "null")}},
	} {
		before, err := schemas.Decode([]byte(row.before), schemas.Limits{})
		require.NoError(t, err)
		got, more, err := approvals.Changes(before, []byte(row.after))
		require.NoError(t, err)
		require.Zero(t, more)
		require.Equal(t, row.want, got, row.before)
	}
}

// A large value is left out with its size, and so are changes beyond a number.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	large := `"` + strings.Repeat("x", 3000) + `"`
	got, _, err := approvals.Changes(map[string]any{"a": "b"}, []byte(`{"a":`+large+`}`))
	require.NoError(t, err)
	require.Equal(t, []approvals.Change{{Path: "/a", From: []byte(`"b"`), ToBytes: 3002}}, got)

	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%02d":1`, i)
	}
	got, more, err := approvals.Changes(map[string]any{}, []byte(`{`+strings.Join(many, ",")+`}`))
	require.NoError(t, err)
	require.Len(t, got, 64)
	require.Equal(t, 36, more)
}

// Changes have so many bytes together, whatever their paths are.
func TestChangesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprintf(`"%02d%s":1`, i, strings.Repeat("m", 10<<10))
	}
	got, more, err := approvals.Changes(map[string]any{}, []byte(`{`+strings.Join(many, ",")+`}`))
	require.NoError(t, err)
	require.Len(t, got, 6)
	require.Equal(t, 54, more)
}
