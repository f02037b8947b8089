package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
	for _, name := range tree(t) {
		ext := path.Ext(name)
		if ext != ".go" && ext != ".md" || strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		checked++
		text := proseOf(t, "../"+name)
		for _, r := range wordRules {
			found := r.pattern.FindAllString(text, -1)
			assert.LessOrEqual(t, len(found), r.spare+len(strings.Fields(text))/1000,
				"%s: %s: %q", name, r.rule, found)
		}
	}
	require.Greater(t, checked, 250)
}

var (
	inlineCode  = regexp.MustCompile("`[^`\n]*`")
	commentLine = regexp.MustCompile(`(?m)^\s*//\s?(.*)$`)
)

// proseOf returns the comments of a Go file, and of a page all but its code.
func proseOf(t *testing.T, file string) string {
	t.Helper()
	body := read(t, file)
	if path.Ext(file) == ".md" {
		return inlineCode.ReplaceAllString(prose(body), "x")
	}
	var lines []string
	for _, match := range commentLine.FindAllStringSubmatch(body, -1) {
		lines = append(lines, match[1])
	}
	return strings.Join(lines, "\n")
}
