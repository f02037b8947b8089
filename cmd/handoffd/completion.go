package main

import (
	"github.com/alecthomas/kong"

	"worldengine/cmd/internal/completion"
)

// completionCommand prints a completion script.
type completionCommand struct {
	completion.Command `embed:""`
}

// Run prints it.
func (c completionCommand) Run(s streams, model *kong.Application) error {
	return c.Print(s.out, model, nil)
}
