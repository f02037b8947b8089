package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// whoAmICommand shows the rights of the connection's user.
type whoAmICommand struct{}

func (whoAmICommand) Help() string {
	return `Shows the user, its role, the towns and actors to which its rights are limited, and the
verbs that it may ask. Without access control every client may ask every verb.

Example:

    handoffctl whoami --user mayor --password …`
}

func (whoAmICommand) Run(ctx context.Context, a *app) error {
	return ask(ctx, a, wire.WhoAmI, struct{}{}, func(t table, id *messages.Identity) {
		t.row("world", id.World)
		t.row("user", id.User)
		t.row("role", cmp.Or(id.Role, "none: there is no access control"))
		t.row("acts on", listed(id.Towns))
		t.row("speaks for", listed(id.Actors))
		t.row("reads", listed(id.Read))
		t.row("verbs", strings.Trim(fmt.Sprint(id.Verbs), "[]"))
	})
}

// listed returns the ids to which a right is limited.
func listed(ids []string) string { return cmp.Or(strings.Join(ids, ", "), "all") }
