package phrase

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A text loses the names of packages that it begins with, and nothing behind them.
func TestSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"worldengine: there is no such town":             "there is no such town",
		"worldengine: schemas: the payload is not valid": "the payload is not valid",
		"natsconn: worldengine: no such world":           "no such world",
		"bench: commitlog: the log does not answer":      "the log does not answer",
		"the answer of access: none":                     "the answer of access: none",
		"the town is paused: worldengine: by an operator": "the town is paused: worldengine: by " +
			"an operator",
	} {
		require.Equal(t, want, Sentence(errors.New(text)))
	}
}
