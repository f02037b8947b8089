package handoff_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// A difference has its path and both values in canonical form; another notation of a number is none.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		before, after string
		items         bool
		want          string
	}{
		{`{"a":1,"b":[1]}`, `{"b":[1.0],"a":1e0}`, false, "[]"},
		{`{"b/c":1,"a":{"d":2}}`, `{"a":{"d":3},"e":null}`, false, "[/a/d 2>3 /b~1c 1> /e >null]"},
		{`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":3}]}`, false, `[/a [1,{"b":2}]>[1,{"b":3}]]`},
		{`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":3}]}`, true, "[/a/1/b 2>3]"},
		{`{"a":[1,2]}`, `{"a":[1]}`, true, "[/a [1,2]>[1]]"},
		{`{"a":1}`, `[1]`, true, `[ {"a":1}>[1]]`},
		{`{"a":{"b":1},"c":[]}`, `{"a":null,"c":0}`, true, `[/a {"b":1}>null /c []>0]`},
	} {
		before, err := schemas.Decode([]byte(row.before), schemas.Limits{})
		require.NoError(t, err)
		after, err := schemas.Decode([]byte(row.after), schemas.Limits{})
		require.NoError(t, err)
		found := []string{}
		for _, d := range handoff.Differences(before, after, row.items) {
			found = append(found, d.Path+" "+string(d.Before)+">"+string(d.After))
		}
		require.Equal(t, row.want, fmt.Sprint(found), row.before)
	}
}
