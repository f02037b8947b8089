package schemastest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Play plays each file of a pattern, and asserts the outputs in it. Play calls start for each file; start
// returns a function from an input to its output: see Replay. With rewrite the outputs are written anew.
func Play(
	t *testing.T, pattern string, rewrite bool, start func(*testing.T) func(input string) []string,
) {
	t.Helper()
	play(t, pattern, "", rewrite, start)
}

// PlayEach is Play for files with several scenarios, between empty lines. It calls start for each of them,
// and plays them side by side.
func PlayEach(
	t *testing.T, pattern string, rewrite bool, start func(*testing.T) func(input string) []string,
) {
	t.Helper()
	play(t, pattern, "\n\n", rewrite, start)
}

func play(
	t *testing.T, pattern, between string, rewrite bool, start func(*testing.T) func(input string) []string,
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
			scenarios := []string{string(data)}
			if between != "" {
				scenarios = strings.Split(string(data), between)
			}
			if rewrite {
				t.Cleanup(func() {
					require.NoError(t, os.WriteFile(file, []byte(strings.Join(scenarios, between)), 0o644))
				})
			}
			for i, text := range scenarios {
				t.Run(text[:max(strings.IndexAny(text, ".:\n"), 0)], func(t *testing.T) {
					t.Parallel()
					got := Replay(text, start(t))
					if !rewrite {
						require.Equal(t, text, got)
					}
					scenarios[i] = got
				})
			}
		})
	}
}

// Replay returns a text with new outputs. A line that begins with "> " is an input, the lines with "< "
// behind it are its output; other lines are prose.
func Replay(text string, play func(input string) []string) string {
	var got []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "< ") {
			continue
		}
		got = append(got, line)
		if input, ok := strings.CutPrefix(line, "> "); ok {
			for _, output := range play(input) {
				got = append(got, "< "+output)
			}
		}
	}
	return strings.Join(got, "\n")
}

// Golden asserts that a file has a text. With rewrite it writes the file anew.
func Golden(t testing.TB, file, got string, rewrite bool) {
	t.Helper()
	if rewrite {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "-rewrite writes it")
	require.Equal(t, string(want), got, "-rewrite writes %s anew", file)
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
