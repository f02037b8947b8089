// Package docs_test holds the documentation against the tree: links, flags, the tables of
// conformance.csv, the arrows between packages, and how pages are written.
package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns every Markdown page of the module by its path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	walk := func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && (base == "node_modules" || base == ".git") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			found[filepath.ToSlash(strings.TrimPrefix(name, "../"))] = read(t, name)
		}
		return nil
	}
	require.NoError(t, filepath.WalkDir("..", walk))
	require.Greater(t, len(found), 20)
	return found
}

var fence = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

// prose returns a page without its blocks of code.
func prose(page string) string { return fence.ReplaceAllString(page, "") }

// Every relative link leads to a file or directory of the module, and to a heading that the page
// has.
func TestPages_Links(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for name, page := range all {
		for _, found := range link.FindAllStringSubmatch(prose(page), -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			checked++
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
				_, err := os.Stat("../" + target)
				assert.NoError(t, err, "%s links to %s", name, found[1])
			}
			if anchor != "" {
				assert.Contains(t, anchors(all[target]), anchor, "%s links to %s", name, found[1])
			}
		}
	}
	require.Greater(t, checked, 150)
}

// anchors returns the headings of a page as links name them.
func anchors(page string) []string {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var names []string
	for _, found := range heading.FindAllStringSubmatch(prose(page), -1) {
		text := dropped.ReplaceAllString(strings.ToLower(found[1]), "")
		names = append(names, strings.ReplaceAll(text, " ", "-"))
	}
	return names
}

// Each path, test and Go name that a page has in backquotes exists.
func TestPages_Names(t *testing.T) {
	t.Parallel()
	code := openModule("..")
	known := everything(t, code)
	span := regexp.MustCompile("`([^`\n]+)`")
	checked := 0
	for name, page := range pages(t) {
		if strings.HasPrefix(name, "docs/adr/") {
			continue // decisions tell of their day
		}
		for _, found := range span.FindAllStringSubmatch(prose(page), -1) {
			if known.checks(found[1]) {
				checked++
				assert.True(t, known.has(found[1]), "%s names `%s`, which is not there",
					name, found[1])
			}
		}
	}
	require.Greater(t, checked, 60)
}

// inventory is what pages may name: files and directories, tests, and declarations as Name,
// Type.Member and package.Name.
type inventory struct {
	paths, tests, names, packages map[string]bool
}

var (
	goPath = regexp.MustCompile(
		`^(worldengine|handoff|runevents|schemas|dedupe|cmd|examples|testdata|docs|\.ci)/[\w./-]+$`)
	goFile   = regexp.MustCompile(`^[\w/]+\.go$`)
	goMember = regexp.MustCompile(`^[A-Z]\w*\.\w+$`)
	goName   = regexp.MustCompile(`^[a-z]\w*\.[A-Z]\w*$`)
)

// checks reports whether a text looks like something that is in the module.
func (k *inventory) checks(text string) bool {
	if goName.MatchString(text) {
		before, _, _ := strings.Cut(text, ".")
		return k.packages[before]
	}
	return goPath.MatchString(text) || goFile.MatchString(text) || testName.MatchString(text) ||
		goMember.MatchString(text)
}

func (k *inventory) has(text string) bool {
	if goFile.MatchString(text) && !strings.Contains(text, "/") {
		return k.names[text]
	}
	return k.paths[text] || k.tests[text] || k.names[text] ||
		k.names[strings.TrimPrefix(text, "worldengine/")]
}

// everything reads the module once.
func everything(t *testing.T, code *module) *inventory {
	t.Helper()
	k := &inventory{
		paths: map[string]bool{}, tests: map[string]bool{}, names: map[string]bool{},
		packages: map[string]bool{},
	}
	walk := func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && (base == "node_modules" || base == ".git") {
			return fs.SkipDir
		}
		name = filepath.ToSlash(strings.TrimPrefix(name, "../"))
		k.paths[name], k.names[entry.Name()] = true, true
		if d, err := code.declarations(name); entry.IsDir() && err == nil {
			k.add(path.Base(name), d)
		}
		return nil
	}
	require.NoError(t, filepath.WalkDir("..", walk))
	return k
}

func (k *inventory) add(name string, d *declarations) {
	k.packages[name] = true
	for test := range d.tests {
		k.tests[test] = true
	}
	for declared := range d.code {
		k.names[declared], k.names[name+"."+declared] = true, true
	}
}

// Each `go test` command of the pages runs tests that there are.
func TestPages_Commands(t *testing.T) {
	t.Parallel()
	code := openModule("..")
	command := regexp.MustCompile("go test (?:-\\w+ )*\\./([\\w/]+) [^`\n]*?-(run|bench) " +
		"'?([\\w|^$/]+)'?")
	checked := 0
	for name, page := range pages(t) {
		for _, found := range command.FindAllStringSubmatch(page, -1) {
			if found[3] == "^$" { // of a benchmark
				continue
			}
			d, err := code.declarations(found[1])
			require.NoError(t, err, name)
			for _, pattern := range strings.Split(found[3], "|") {
				first, _, _ := strings.Cut(pattern, "/")
				checked++
				assert.True(t, d.anyTest(regexp.MustCompile(first)), "%s: %s runs no test",
					name, found[0])
			}
		}
	}
	require.Greater(t, checked, 30)
}

func (d *declarations) anyTest(pattern *regexp.Regexp) bool {
	for test := range d.tests {
		if pattern.MatchString(strings.TrimPrefix(test, "Benchmark")) || pattern.MatchString(test) {
			return true
		}
	}
	return false
}

// architecture.md lists every package.
func TestPages_Architecture(t *testing.T) {
	t.Parallel()
	_, tree, _ := strings.Cut(read(t, "architecture.md"), "\n## The tree\n")
	tree, _, _ = strings.Cut(tree, "\n## ")
	for _, name := range listed(t, "{{.ImportPath}}") {
		if name = strings.TrimPrefix(name, "worldengine/"); name != "docs" {
			require.Contains(t, tree, "`"+name+"`")
		}
	}
}

// contracts.md has every kind of a precondition that the engine knows.
func TestPages_Preconditions(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`PreconditionKind = "([a-z_]+)"`).
		FindAllStringSubmatch(read(t, "../handoff/proposal.go"), -1)
	require.GreaterOrEqual(t, len(declared), 11)
	page := read(t, "contracts.md")
	for _, kind := range declared {
		require.True(t, strings.Contains(page, "`"+kind[1]+"`"), kind[1])
	}
}

// A page is read in a terminal too; the README is read first, so it is short.
func TestPages_Narrow(t *testing.T) {
	t.Parallel()
	for name, page := range pages(t) {
		for _, line := range strings.Split(prose(page), "\n") {
			assert.True(t, strings.HasPrefix(line, "|") || len([]rune(line)) <= 120,
				"%s: %s", name, line)
		}
	}
	require.LessOrEqual(t, strings.Count(read(t, "../README.md"), "\n"), 100)
}
