package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordRules are the rules of words that a pattern can find (CONTRIBUTING.md). A file may have spare
// matches, and one more for each thousand words, since a place may be "where".
var wordRules = []struct {
	rule    string
	pattern *regexp.Regexp
	spare   int
}{
	{`a condition is "if" or "when"`, regexp.MustCompile(`(?i)\bwhere\b`), 1},
	{`a noun instead of a bare "what"`, regexp.MustCompile(
		`(?i)\bwhat (is|was|has|had|a|an|the|it|they|takes|comes|becomes|does)\b`), 0},
	{`the noun again instead of "that of"`, regexp.MustCompile(`(?i)\b(that|those) of\b`), 0},
}

// TestWords_PlainFiles holds the comments of Go files, and all pages but the ADRs, to wordRules.
func TestWords_PlainFiles(t *testing.T) {
	t.Parallel()
	checked := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if base := entry.Name(); entry.IsDir() &&
			slices.Contains([]string{".git", "node_modules", "adr"}, base) {
			return fs.SkipDir
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		if ext := filepath.Ext(name); ext != ".go" && ext != ".md" {
			return err
		}
		checked++
		text := proseOf(t, path)
		for _, r := range wordRules {
			found := r.pattern.FindAllString(text, -1)
			require.LessOrEqual(t, len(found), r.spare+len(strings.Fields(text))/1000,
				"%s: %s: %q", name, r.rule, found)
		}
		return err
	}))
	require.Greater(t, checked, 250)
}

var (
	inlineCode  = regexp.MustCompile("`[^`\n]*`")
	commentLine = regexp.MustCompile(`(?m)^\s*//\s?(.*)$`)
)

// proseOf returns the comments of a Go file, and of a page all but its code.
func proseOf(t *testing.T, path string) string {
	t.Helper()
	body := read(t, path)
	if filepath.Ext(path) == ".md" {
		return inlineCode.ReplaceAllString(prose(body), "x")
	}
	var lines []string
	for _, match := range commentLine.FindAllStringSubmatch(body, -1) {
		lines = append(lines, match[1])
	}
	return strings.Join(lines, "\n")
}
