// Package docs_test holds the documentation against the tree: links, flags, the tables of
// conformance.csv, the arrows between packages, and how pages are written.
package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walk returns the path of every file and directory of the module, below the root.
var walk = sync.OnceValues(func() (paths []string, err error) {
	err = fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		if base := entry.Name(); entry.IsDir() && (base == "node_modules" || base == ".git") {
			return fs.SkipDir
		}
		paths = append(paths, name)
		return err
	})
	return paths, err
})

func tree(t *testing.T) []string {
	t.Helper()
	paths, err := walk()
	require.NoError(t, err)
	require.Greater(t, len(paths), 500)
	return paths
}

// pages returns every Markdown page of the module by its path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range tree(t) {
		if strings.HasSuffix(name, ".md") {
			found[name] = read(t, "../"+name)
		}
	}
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
	known := everything(t)
	span := regexp.MustCompile("`([^`\n]+)`")
	checked := 0
	for name, page := range pages(t) {
		if strings.HasPrefix(name, "docs/adr/") {
			continue // decisions tell of their day
		}
		for _, found := range span.FindAllStringSubmatch(prose(page), -1) {
			if text := found[1]; mustExist(text, known) {
				checked++
				assert.True(t, known[text] || known[strings.TrimPrefix(text, modulePath+"/")],
					"%s names `%s`, which is not there", name, text)
			}
		}
	}
	require.Greater(t, checked, 60)
}

var (
	goPath = regexp.MustCompile(
		`^(worldengine|handoff|runevents|schemas|dedupe|cmd|examples|testdata|docs|\.ci)/[\w./-]+$`)
	goFile   = regexp.MustCompile(`^[\w/]+\.go$`)
	goMember = regexp.MustCompile(`^[A-Z]\w*\.\w+$`)
	goName   = regexp.MustCompile(`^[a-z]\w*\.[A-Z]\w*$`)
)

// mustExist reports whether a text looks like the name of a part of the module.
func mustExist(text string, known map[string]bool) bool {
	if goName.MatchString(text) {
		before, _, _ := strings.Cut(text, ".")
		return known["package "+before]
	}
	return goPath.MatchString(text) || goFile.MatchString(text) || testName.MatchString(text) ||
		goMember.MatchString(text)
}

// everything returns the names that pages may use: files and directories by path and by name, tests,
// and declarations as Name, Type.Member and package.Name. A package is also "package name".
func everything(t *testing.T) map[string]bool {
	t.Helper()
	code, known := openModule(".."), map[string]bool{}
	for _, name := range tree(t) {
		base := path.Base(name)
		known[name], known[base] = true, true
		d, err := code.declarations(name)
		if err != nil {
			continue // no package
		}
		known["package "+base] = true
		maps.Copy(known, d.tests)
		for declared := range d.code {
			known[declared], known[base+"."+declared] = true, true
		}
	}
	return known
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
		name = strings.TrimPrefix(strings.TrimPrefix(name, internal), modulePath+"/")
		if name != "docs" {
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

// A page is read in a terminal too; the README is read first, so it is short. Targets of links do not count.
func TestPages_Narrow(t *testing.T) {
	t.Parallel()
	target := regexp.MustCompile(`\]\([^) ]*\)`)
	for name, page := range pages(t) {
		for line := range strings.SplitSeq(target.ReplaceAllString(prose(page), "]"), "\n") {
			assert.True(t, strings.HasPrefix(line, "|") || len([]rune(line)) <= 120,
				"%s: %s", name, line)
		}
	}
	require.LessOrEqual(t, strings.Count(read(t, "../README.md"), "\n"), 100)
}
