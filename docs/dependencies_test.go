package docs_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependencies.md lists the direct dependencies and all modules that are in the programs, each with
// a reason and a licence, and no others; and it says which are in the programs.
func TestDependencies_Listed(t *testing.T) {
	t.Parallel()
	listed, said := map[string]bool{}, map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\| ([^|]*) \\|(?: (yes|no) \\|)?$")
	for _, cells := range row.FindAllStringSubmatch(read(t, "dependencies.md"), -1) {
		require.NotEmpty(t, strings.TrimSpace(cells[2]), "why is %s there?", cells[1])
		require.NotEmpty(t, strings.TrimSpace(cells[3]), "what is the licence of %s?", cells[1])
		listed[cells[1]] = true
		if cells[4] == "yes" {
			said[cells[1]] = true
		}
	}
	linked := modulesInPrograms(t)
	require.Equal(t, slices.Sorted(maps.Keys(linked)), slices.Sorted(maps.Keys(said)),
		"what is in the programs")

	expected := maps.Clone(linked)
	for _, line := range strings.Split(read(t, "../go.mod"), "\n") {
		path, version, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "require ")),
			" ")
		if strings.HasPrefix(version, "v") && !strings.Contains(version, "// indirect") {
			expected[path] = true
		}
	}
	packages, err := filepath.Glob("../examples/*/package.json")
	require.NoError(t, err)
	for _, file := range append(packages, "../worldengine/client/js/package.json",
		"../worldengine/internal/serve/console/web/package.json", "../.ci/asyncapi/package.json",
		"../.ci/mcp-conformance/package.json") {
		var example struct{ Dependencies, DevDependencies map[string]string }
		require.NoError(t, json.Unmarshal([]byte(read(t, file)), &example), file)
		maps.Copy(expected, names(example.Dependencies))
		maps.Copy(expected, names(example.DevDependencies))
	}
	maps.Copy(expected, pythonPackages(t))
	maps.Copy(expected, javaArtifacts(t))
	require.Equal(t, slices.Sorted(maps.Keys(expected)), slices.Sorted(maps.Keys(listed)))
}

// pythonPackages are the packages that the Python client needs, to run, to be built and to be tested.
func pythonPackages(t *testing.T) map[string]bool {
	packages := map[string]bool{}
	requirements := regexp.MustCompile(`(?m)^(?:requires|dependencies|test) = \[(.*)\]$`)
	name := regexp.MustCompile(`"([a-z0-9-]+)`)
	for _, line := range requirements.FindAllStringSubmatch(read(t, "../worldengine/client/python/pyproject.toml"), -1) {
		for _, found := range name.FindAllStringSubmatch(line[1], -1) {
			packages[found[1]] = true
		}
	}
	require.Greater(t, len(packages), 3)
	return packages
}

// javaArtifacts are the artifacts that the Java client, the kit and the examples in Java need.
func javaArtifacts(t *testing.T) map[string]bool {
	artifacts := map[string]bool{}
	dependency := regexp.MustCompile(`<groupId>([^<]*)</groupId>\s*<artifactId>([^<]*)</artifactId>`)
	for _, pattern := range []string{"../worldengine/client/java/*/pom.xml", "../examples/*/pom.xml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			for _, list := range regexp.MustCompile(`(?s)<dependencies>.*?</dependencies>`).FindAllString(read(t, file), -1) {
				for _, found := range dependency.FindAllStringSubmatch(list, -1) {
					if found[1] != "worldengine" { // of this repository
						artifacts[found[1]+":"+found[2]] = true
					}
				}
			}
		}
	}
	return artifacts
}

// modulesInPrograms are the modules that have a package in a program, as it is built for Linux.
func modulesInPrograms(t *testing.T) map[string]bool {
	list := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "../cmd/...")
	list.Env = append(os.Environ(), "GOOS=linux")
	out, err := list.Output()
	require.NoError(t, err)
	modules := map[string]bool{}
	for _, path := range strings.Fields(string(out)) {
		modules[path] = true
	}
	require.Greater(t, len(modules), 5)
	return modules
}

func names(versions map[string]string) map[string]bool {
	set := map[string]bool{}
	for name, version := range versions {
		if !strings.HasPrefix(version, "file:") { // a package of this repository
			set[name] = true
		}
	}
	return set
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}
