// Package manual makes what a program's users read besides --help from the same source, the model
// of its command line: completion scripts for shells, and man pages. The same model always gives
// the same bytes.
package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is a command that prints a completion script.
type Completion struct {
	Shell string `arg:"" help:"${enum}." enum:"bash,zsh,fish"`
}

// Script returns the script for the shell. The scripts skip the values of flags by the flags'
// names, so a name must not take a value at one command and none at another.
func (c Completion) Script(app *kong.Application) (string, error) {
	taking := valuedNames(app)
	for _, at := range commands(app) {
		for _, f := range at.flags {
			if !valued(f) && slices.Contains(taking, "--"+f.Name) {
				return "", fmt.Errorf("--%s takes a value, but not at %s", f.Name, at.path)
			}
		}
	}
	switch c.Shell {
	case "bash":
		return Bash(app), nil
	case "zsh":
		return Zsh(app), nil
	case "fish":
		return Fish(app), nil
	}
	return "", fmt.Errorf("there is no completion for %s", c.Shell)
}

// command is a place in a command line: the program itself, or one of its commands.
type command struct {
	node *kong.Node
	path string // such as "town get"; "" for the program
	// flags are those that can be given there; those of the program are the last ones.
	flags []*kong.Flag
}

// commands returns the program and its commands, each before the ones below it.
func commands(app *kong.Application) []command {
	var all []command
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		all = append(all, command{n, path, flagsOf(n)})
		for _, child := range visible(n) {
			walk(child, strings.TrimSpace(path+" "+child.Name))
		}
	}
	walk(app.Node, "")
	return all
}

// visible returns the commands below one.
func visible(n *kong.Node) []*kong.Node {
	var shown []*kong.Node
	for _, child := range n.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			shown = append(shown, child)
		}
	}
	return shown
}

// flagsOf returns the flags that can be given at a command: its own first, and those of the command
// that runs where none is named.
func flagsOf(n *kong.Node) []*kong.Flag {
	groups := n.AllFlags(true)
	if n.DefaultCmd != nil {
		groups = append([][]*kong.Flag{n.DefaultCmd.Flags}, groups...)
	}
	slices.Reverse(groups)
	var flags []*kong.Flag
	for _, group := range groups {
		for _, f := range group {
			if !f.Hidden && !slices.Contains(flags, f) {
				flags = append(flags, f)
			}
		}
	}
	return flags
}

// valued reports whether a flag takes a value.
func valued(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// names returns how a flag is written.
func names(f *kong.Flag) []string {
	all := []string{"--" + f.Name}
	if f.Short != 0 {
		all = append(all, "-"+string(f.Short))
	}
	return all
}

// choices returns the values that there are of a flag or an argument, nil where any may be given.
func choices(v *kong.Value) []string {
	var all []string
	for _, value := range v.EnumSlice() {
		if value != "" {
			all = append(all, value)
		}
	}
	return all
}

// argumentChoices returns the values that the first argument of a command can have.
func argumentChoices(n *kong.Node) []string {
	if len(n.Positional) == 0 {
		return nil
	}
	return choices(n.Positional[0])
}

// valuedNames returns how the flags are written that take a value, of all commands.
func valuedNames(app *kong.Application) []string {
	var all []string
	for _, c := range commands(app) {
		for _, f := range c.flags {
			if valued(f) {
				all = append(all, names(f)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// brief returns the first sentence of a help text.
func brief(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	first, _, _ = strings.Cut(first, ". ")
	return strings.TrimSuffix(first, ".")
}
