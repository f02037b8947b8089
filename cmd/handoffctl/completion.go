package main

import (
	"context"
	"regexp"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"worldengine/cmd/internal/completion"
	"worldengine/worldengine/messages"
)

// completionCommand prints a completion script.
type completionCommand struct {
	completion.Command `embed:""`
}

func (completionCommand) Help() string {
	return `Prints a script with which the shell completes commands, flags and their values, and
files elsewhere. The script asks the program, so it needs no update with the program. For a town it
asks the server that the command line names; it leaves out ids that a shell would have to quote.

Examples:

    handoffctl completion bash > ~/.local/share/bash-completion/completions/handoffctl
    handoffctl completion zsh > ~/.zfunc/_handoffctl       # a directory of $fpath
    handoffctl completion fish > ~/.config/fish/completions/handoffctl.fish`
}

func (c completionCommand) Run(ctx context.Context, a *app, parser *kong.Kong) error {
	return c.Print(a.out, parser.Model, func(name, begins string) []string {
		if name != "town" {
			return nil
		}
		return townsOf(ctx, a, parser, c.Words[:len(c.Words)-1], begins)
	})
}

// Bounds of the towns that are candidates: their number, and the time for the connection and for
// the answer each, during which the shell is blocked.
const (
	mostTowns   = 1000
	townsWithin = time.Second
)

// unquoted matches the ids of towns that no shell requires to be quoted.
var unquoted = regexp.MustCompile(`^[\pL\pN_][\pL\pN_.-]*$`)

// townsOf returns the towns whose ids begin with a text, of the server and the world that a command
// line names; none if the server does not answer soon.
func townsOf(
	ctx context.Context, a *app, parser *kong.Kong, words []string, begins string,
) (ids []string) {
	line, err := kong.Trace(parser, words) // the line is not complete, so no Parse
	if err != nil || line.Reset() != nil || line.Resolve() != nil {
		return nil
	}
	if _, err := line.Apply(); err != nil {
		return nil
	}
	nc, err := a.dial("handoffctl", nats.Timeout(townsWithin))
	if err != nil {
		return nil
	}
	a.flags.Timeout = townsWithin
	for t, err := range a.client(nc).Towns(ctx, messages.TownList{Text: begins, Limit: mostTowns}) {
		if err != nil || len(ids) == mostTowns {
			break
		}
		if unquoted.MatchString(t.TownID) {
			ids = append(ids, t.TownID)
		}
	}
	return ids
}
