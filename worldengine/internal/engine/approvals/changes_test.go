package approvals

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/messages"
)

// A change has a path and its values; an array of another length changes as a whole.
func TestChanges_Values(t *testing.T) {
	t.Parallel()
	change := func(path, from, to string) messages.ExpectedChange {
		c := messages.ExpectedChange{Path: path}
		if from != "" {
			c.From = []byte(from)
		}
		if to != "" {
			c.To = []byte(to)
		}
		return c
	}
	large := `"` + strings.Repeat("x", 3000) + `"`
	for _, c := range []struct {
		before, after string
		want          []messages.ExpectedChange
	}{
		{`{"a":1}`, `{"a":1.0}`, nil},
		{`{"a":1,"b":{"c":2}}`, `{"b":{"c":3},"d":null}`, []messages.ExpectedChange{
			change("/a", "1", ""), change("/b/c", "2", "3"), change("/d", "", "null")}},
		{`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":3}]}`,
			[]messages.ExpectedChange{change("/a/1/b", "2", "3")}},
		{`{"a":[1,2]}`, `{"a":[1]}`, []messages.ExpectedChange{change("/a", "[1,2]", "[1]")}},
		{`{"a":{"b":1}}`, `{"a":null}`,
			[]messages.ExpectedChange{change("/a", `{"b":1}`, "null")}},
		{`{"a":"b"}`, `{"a":` + large + `}`,
			[]messages.ExpectedChange{{Path: "/a", From: []byte(`"b"`), ToBytes: 3002}}},
	} {
		before, err := schemas.Decode([]byte(c.before), schemas.Limits{})
		require.NoError(t, err)
		got, more, err := changes(before, []byte(c.after))
		require.NoError(t, err)
		require.Zero(t, more)
		require.Equal(t, c.want, got, c.before)
	}
}

// Changes are bounded in number and bytes; the others are counted.
func TestChanges_Bounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ members, nameBytes, found, more int }{
		{100, 0, 64, 36}, {60, 10 << 10, 6, 54},
	} {
		var members []string
		for i := range c.members {
			members = append(members, fmt.Sprintf(`"%02d%s":1`, i, strings.Repeat("m", c.nameBytes)))
		}
		got, more, err := changes(map[string]any{}, []byte(`{`+strings.Join(members, ",")+`}`))
		require.NoError(t, err)
		require.Equal(t, []int{c.found, c.more}, []int{len(got), more})
	}
}
