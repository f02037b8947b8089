package runevents_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestAlert_ID(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]runevents.Alert{
		"C||a":    {At: "a"},
		"C||h":    {HandoffID: "h", At: "a"},
		"C|r|":    {TownID: "t", At: "a"},
		"C|r|t|s": {TownID: "t", Since: "s"},
		"C|r|d":   {DeadLetter: "d"},
		"C|r|h":   {DeadLetter: "d", HandoffID: "h"},
		"C|r|h|s": {TownID: "t", HandoffID: "h", Since: "s"},
		"C|r|e":   {DeadLetter: "d", HandoffID: "h", EventID: "e"},
		"C|r|7":   {EventID: "e", LogSeq: 7},
	} {
		a.Code, a.RunID = "C", strings.Split(want, "|")[1]
		require.Equal(t, want, a.ID())
	}
}
