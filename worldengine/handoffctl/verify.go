package handoffctl

import (
	"cmp"
	"errors"
	"strings"

	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/jsonfiles"
	"worldengine/worldengine/internal/tool/verify"
)

type verifyCommand struct {
	Paths []string `arg:"" name:"path" help:"Files to check, and directories to search for *.json, *.jsonl and *.ndjson that are not hidden; - for standard input."`
}

func (c *verifyCommand) Run(a *app) error {
	files, err := jsonfiles.Files(c.Paths)
	if err != nil {
		return usage(err)
	}
	var found []verify.Document
	wrong := 0
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return err
		}
		for _, d := range verify.File(data) {
			if len(files) > 1 {
				d.File = file
			}
			if !d.Valid {
				wrong++
			}
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return usagef("there is no document in %s", strings.Join(c.Paths, ", "))
	}
	return cmp.Or(a.print(map[string]any{"valid": wrong == 0, "documents": found}, "documents", found),
		failedIf(wrong > 0, "invalid documents: %d of %d", wrong, len(found)))
}

type schemaCommand struct {
	Name     string `arg:"" optional:"" help:"Name of the schema; without it the command lists the names."`
	AsyncAPI bool   `name:"asyncapi" help:"Print the AsyncAPI 3.0 document of all verbs, events, plugin requests and errors."`
}

func (c *schemaCommand) Run(a *app) error {
	switch {
	case c.AsyncAPI && c.Name != "":
		return usagef("--asyncapi prints the document of all schemas: leave out %s", c.Name)
	case c.AsyncAPI:
		return a.printRaw([]byte(schemas.AsyncAPI()))
	}
	var names []string
	for _, name := range schemas.Names() {
		names = append(names, string(name))
	}
	if c.Name == "" {
		return a.print(names, "names", names)
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
