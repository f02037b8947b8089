package main

import (
	"github.com/alecthomas/kong"

	"worldengine/cmd/internal/completion"
)

// completionCommand prints a completion script.
type completionCommand struct {
	completion.Command `embed:""`
}

// Help is the command's long help.
func (completionCommand) Help() string {
	return `Prints a script that makes the shell complete commands, flags and their values; files
elsewhere. The script asks the program, so it stays right when the program changes.

Examples:

    handoffctl completion bash > ~/.local/share/bash-completion/completions/handoffctl
    handoffctl completion zsh > ~/.zfunc/_handoffctl       # a directory of $fpath
    handoffctl completion fish > ~/.config/fish/completions/handoffctl.fish`
}

// Run prints it.
func (c completionCommand) Run(a *app, model *kong.Application) error {
	return c.Print(a.out, model)
}
