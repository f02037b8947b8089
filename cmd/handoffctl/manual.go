package main

import (
	"github.com/alecthomas/kong"

	"worldengine/cmd/internal/manual"
	"worldengine/cmd/internal/version"
)

// completionCommand prints a completion script.
type completionCommand struct {
	manual.Completion `embed:""`
}

// Help is the command's long help.
func (completionCommand) Help() string {
	return `Prints a script that makes the shell complete commands, flags and their values; files
elsewhere.

Examples:

    handoffctl completion bash > ~/.local/share/bash-completion/completions/handoffctl
    handoffctl completion zsh > ~/.zfunc/_handoffctl       # a directory of $fpath
    handoffctl completion fish > ~/.config/fish/completions/handoffctl.fish`
}

// Run prints it.
func (c completionCommand) Run(a *app, model *kong.Application) error {
	script, err := c.Script(model)
	if err != nil {
		return usagef("%v", err)
	}
	return a.printf("%s", script)
}

// manCommand writes the man pages.
type manCommand struct {
	manual.Man `embed:""`
}

// Help is the command's long help.
func (manCommand) Help() string {
	return `Writes a man page for handoffctl and one for each of its commands, with the same text as
--help. handoffd man writes those of the server.

Example:

    handoffctl man ~/.local/share/man/man1`
}

// Run writes them.
func (c manCommand) Run(a *app, model *kong.Application) error {
	names, err := c.Write(model, version.String())
	if err != nil {
		return usagef("%v", err)
	}
	if a.json() {
		return a.printJSON(map[string][]string{"pages": names})
	}
	return a.printf("%d pages in %s\n", len(names), c.Dir)
}
