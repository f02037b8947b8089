package phrase

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// Sentence knows each package of the server whose errors begin with its name.
func TestSentence_Packages(t *testing.T) {
	t.Parallel()
	found := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name := filepath.Base(filepath.Dir(path))
		source, err := os.ReadFile(path)
		if regexp.MustCompile(`(Errorf|errors\.New)\("` + name + `: `).Match(source) {
			found++
			require.Equal(t, "why", Sentence(errors.New(name+": why")), path)
		}
		return err
	}))
	require.NotZero(t, found)
}

func TestCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 towns", Counted(0, "town"))
	require.Equal(t, "1 town", Counted(uint64(1), "town"))
	require.Equal(t, "12 towns", Counted(int64(12), "town"))
}
