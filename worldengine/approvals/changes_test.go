package approvals_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
		got, err := approvals.Changes([]byte(row.before), []byte(row.after))
		require.NoError(t, err)
		require.Equal(t, row.want, got, row.before)
	}
}
