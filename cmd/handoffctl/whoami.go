package main

import (
	"cmp"
	"context"
	"strings"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// whoAmICommand shows the rights of the connection's user.
type whoAmICommand struct{}

func (whoAmICommand) Help() string {
	return `Shows the user, its role, the towns and actors that its rights are bound to, and the
verbs that it may ask. Without access control every client may ask every verb.

Example:

    handoffctl whoami --user mayor --password …`
}

func (c *whoAmICommand) Run(ctx context.Context, a *app, server *client.Client) error {
	var id messages.Identity
	raw, err := server.Ask(ctx, wire.WhoAmI, struct{}{}, &id)
	if err != nil {
		return err
	}
	return a.print(raw, func(t table) {
		t.row("world", id.World)
		t.row("user", id.User)
		t.row("role", cmp.Or(id.Role, "none: there is no access control"))
		t.row("acts on", listed(id.Towns))
		t.row("speaks for", listed(id.Actors))
		t.row("reads", listed(id.Read))
		verbs := make([]string, len(id.Verbs))
		for i, verb := range id.Verbs {
			verbs[i] = string(verb)
		}
		t.row("verbs", strings.Join(verbs, " "))
	})
}

// listed returns the ids that a right is bound to.
func listed(ids []string) string { return cmp.Or(strings.Join(ids, ", "), "all") }
