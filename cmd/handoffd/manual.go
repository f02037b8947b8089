package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"worldengine/cmd/internal/manual"
	"worldengine/cmd/internal/version"
)

// completionCommand prints a completion script.
type completionCommand struct {
	manual.Completion `embed:""`
}

// Run prints it.
func (c completionCommand) Run(s streams, model *kong.Application) error {
	script, err := c.Script(model)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.out, script)
	return err
}

// manCommand writes the man pages.
type manCommand struct {
	manual.Man `embed:""`
}

// Run writes them.
func (c manCommand) Run(s streams, model *kong.Application) error {
	names, err := c.Write(model, version.String())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%d pages in %s\n", len(names), c.Dir)
	return err
}
