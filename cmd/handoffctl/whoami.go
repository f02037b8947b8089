package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// whoAmICommand shows what the user of the connection may do.
type whoAmICommand struct{}

// Help is the command's long help.
func (whoAmICommand) Help() string {
	return `Shows the user, its role, the towns and actors that its rights are bound to, and the
verbs that it may ask. Without access control every client may ask every verb.

Example:

    handoffctl whoami --user mayor --password …`
}

// Run shows it.
func (c *whoAmICommand) Run(ctx context.Context, a *app, server *client.Client) error {
	var id messages.Identity
	raw, err := server.Ask(ctx, wire.WhoAmI, struct{}{}, &id)
	if err != nil {
		return err
	}
	return a.printAnswer(raw, func(w io.Writer) {
		role := cmp.Or(id.Role, "none: there is no access control")
		fmt.Fprintf(w, "world\t%s\n", show(id.World))
		fmt.Fprintf(w, "user\t%s\n", orDash(id.User))
		fmt.Fprintf(w, "role\t%s\n", show(role))
		for _, bound := range []struct {
			what string
			ids  []string
		}{{"acts on", id.Towns}, {"speaks for", id.Actors}, {"reads", id.Read}} {
			fmt.Fprintf(w, "%s\t%s\n", bound.what,
				show(cmp.Or(strings.Join(bound.ids, ", "), "all")))
		}
		fmt.Fprintf(w, "verbs\t%s\n", show(strings.Trim(fmt.Sprint(id.Verbs), "[]")))
	})
}
