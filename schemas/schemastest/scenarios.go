package schemastest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Play plays each file of a pattern, and asserts the outputs in it. A line that begins with "> " is
// an input, the lines with "< " behind it are its output; other lines are prose. Play calls start
// for each file; start returns a function from an input to its output. With rewrite the outputs are
// written anew.
func Play(
	t *testing.T, pattern string, rewrite bool, start func(*testing.T) func(input string) []string,
) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			play, got := start(t), ""
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, "< ") {
					continue
				}
				got += line
				if input, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> "); ok {
					for _, output := range play(input) {
						got += "< " + output + "\n"
					}
				}
			}
			if rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(data), got)
		})
	}
}

// Table calls check with each input in the text of a file, and its output. A line that is not
// indented is an input; the indented lines below are the output of each input before them. Lines
// that begin with "#" are prose.
func Table(text string, check func(input string, output []string)) {
	var inputs, output []string
	for line := range strings.SplitSeq(text+"\nend", "\n") {
		if part, indented := strings.CutPrefix(line, "  "); indented {
			output = append(output, part)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if len(output) > 0 {
			for _, input := range inputs {
				check(input, output)
			}
			inputs, output = nil, nil
		}
		inputs = append(inputs, line)
	}
}
