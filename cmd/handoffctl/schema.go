package main

import (
	"errors"
	"strings"

	"worldengine/schemas"
)

// schemaCommand prints a schema.
type schemaCommand struct {
	Name string `arg:"" optional:"" help:"Name of the schema; without it the names are listed."`
}

func (schemaCommand) Help() string {
	return `Prints one of the JSON Schemas (draft 2020-12) that the server checks payloads with.
That of the payload of a run event has the name of the event's type.

Examples:

    handoffctl schema execution-handoff.v1
    handoffctl schema StepFailed`
}

func (c *schemaCommand) Run(a *app) error {
	names := make([]string, 0, len(schemas.Names()))
	for _, name := range schemas.Names() {
		names = append(names, string(name))
	}
	if c.Name == "" && a.json() {
		return a.printJSON(names)
	}
	if c.Name == "" {
		return a.printf("%s\n", strings.Join(names, "\n"))
	}
	source, err := schemas.Source(schemas.Name(c.Name))
	if errors.Is(err, schemas.ErrUnknownSchema) {
		return usagef("there is no schema %q, but %s", c.Name, strings.Join(names, ", "))
	}
	if err != nil {
		return err
	}
	return a.printRaw(source)
}
