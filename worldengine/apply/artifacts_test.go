package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// An invalid artifact is counted, and the others are kept.
func TestArtifacts_Kept(t *testing.T) {
	t.Parallel()
	const good = `{"uri":"file:///world/1"}`
	long := `{"uri":"file:///` + strings.Repeat("a", maxArtifactSize) + `"}`
	for name, c := range map[string]struct {
		list          string
		kept, leftOut int
	}{
		"none":              {``, 0, 0},
		"an empty list":     {`[]`, 0, 0},
		"no list":           {`{"uri":"file:///world/1"}`, 0, 0},
		"one":               {`[` + good + `]`, 1, 0},
		"bytes":             {`[{"uri":"data:text/plain,hello"},` + good + `]`, 1, 1},
		"no URI":            {`[{"kind":"log"},` + good + `]`, 1, 1},
		"no object":         {`[7,null,"file:///a",` + good + `]`, 1, 3},
		"an unknown member": {`[{"uri":"file:///a","body":"x"}]`, 0, 1},
		"one that is long":  {`[` + long + `,` + good + `]`, 1, 1},
		"as many as are kept": {fmt.Sprintf(`[%s%s]`, good,
			strings.Repeat(","+good, maxArtifacts-1)), maxArtifacts, 0},
		"two too many": {fmt.Sprintf(`[%s%s]`, good,
			strings.Repeat(","+good, maxArtifacts+1)), maxArtifacts, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := artifactsOf(jsontext.Value(c.list))
			require.Equal(t, []int{c.kept, c.leftOut}, []int{len(got.References), got.LeftOut})
			for _, r := range got.References {
				require.JSONEq(t, good, string(r))
			}
		})
	}
}
