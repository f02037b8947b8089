package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each alternative of a pattern by which the scripts choose tests, or leave them out, matches a test: a test that
// was renamed would be left out of a run, or not left out, without a word.
func TestCI_NamesTests(t *testing.T) {
	t.Parallel()
	var tests []string
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, found := range declaredTest.FindAllStringSubmatch(read(t, "../"+path), -1) {
				tests = append(tests, found[1])
			}
		}
		return err
	}))
	for _, script := range []string{"run", "nightly"} {
		text := strings.ReplaceAll(read(t, "../.ci/"+script), "'\\\n'", "")
		for _, set := range assigned.FindAllStringSubmatch(text, -1) {
			text = strings.ReplaceAll(text, "$"+set[1], set[2])
		}
		patterns := chosenTests.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, patterns, script)
		for _, found := range patterns {
			pattern, _, _ := strings.Cut(found[1], "/") // subtests follow
			parsed, err := syntax.Parse(pattern, syntax.Perl)
			require.NoError(t, err, pattern)
			for _, one := range alternatives(parsed) {
				assert.True(t, slices.ContainsFunc(tests, regexp.MustCompile(one).MatchString),
					".ci/%s: no test matches %s, of %s", script, one, pattern)
			}
		}
	}
}

var (
	declaredTest = regexp.MustCompile(`(?m)^func (Test\w*)\(`)
	assigned     = regexp.MustCompile(`(?m)^(\w+)='([^']*)'`)
	chosenTests  = regexp.MustCompile(`["']([(^]*Test[^"':]*)["']`)
)

// alternatives returns the patterns that are alternatives of each other in one.
func alternatives(re *syntax.Regexp) (all []string) {
	switch re.Op {
	case syntax.OpCapture:
		return alternatives(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			all = append(all, alternatives(sub)...)
		}
		return all
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, begin := range all {
				for _, end := range alternatives(sub) {
					longer = append(longer, begin+end)
				}
			}
			all = longer
		}
		return all
	}
	return []string{re.String()}
}
