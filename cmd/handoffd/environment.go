package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// variablePrefix is how the environment variables of handoffd begin; those for tests begin with
// testPrefix.
const (
	variablePrefix = "HANDOFFD_"
	testPrefix     = variablePrefix + "TEST_"
)

// unknownVariables returns the names of the variables in an environment that begin as handoffd's
// do, and are of no flag: they are misspelt, or of another version. They are in alphabetical order.
func unknownVariables(environ []string, model *kong.Application) []string {
	known := map[string]bool{}
	for _, node := range append(model.Leaves(false), model.Node) {
		for _, flag := range node.Flags {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
	}
	var unknown []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && !strings.HasPrefix(name, testPrefix) &&
			!known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
