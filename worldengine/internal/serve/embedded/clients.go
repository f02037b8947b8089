package embedded

import (
	"cmp"
	"slices"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// maxClients bounds the list of clients.
const maxClients = 500

// Clients returns the connected clients that may use a world, then those that were connected lately; each
// group begins with the one that was seen last. A client has the towns of the world that it applies
// commands for. Connections with the same user and the same name are one client. more are clients without a connection.
func (e *NATS) Clients(
	world string, directory *access.Directory, more []messages.Client,
) ([]messages.Client, error) {
	connections, err := e.server.Connz(&natsserver.ConnzOptions{
		Username: true, Subscriptions: true, State: natsserver.ConnAll, Limit: 2 * natsserver.DEFAULT_MAX_CLOSED_CLIENTS,
	})
	if err != nil {
		return nil, err
	}
	own := []string{e.accounts.engine.Public, e.accounts.asking.Public}
	type named struct{ user, name string }
	all := map[named]*messages.Client{}
	for _, c := range connections.Conns {
		if slices.Contains(own, c.AuthorizedUser) {
			continue
		}
		user, role, may := directory.User(c.AuthorizedUser, world)
		if !may {
			continue
		}
		if directory == nil && c.AuthorizedUser == e.accounts.operator.Public {
			user, role = "local operator", wire.Operator
		}
		key := named{user, c.Name}
		if all[key] == nil {
			all[key] = &messages.Client{User: user, Role: string(role), Name: c.Name}
		}
		count(all[key], c, wire.ApplySubject(world, ""))
	}
	list := append([]messages.Client{}, more...)
	for _, client := range all {
		slices.Sort(client.Towns)
		client.Towns = slices.Compact(client.Towns)
		list = append(list, *client)
	}
	slices.SortFunc(list, func(a, b messages.Client) int {
		return cmp.Or(cmp.Compare(min(b.Connections, 1), min(a.Connections, 1)),
			strings.Compare(b.LastSeen, a.LastSeen), strings.Compare(a.User, b.User),
			strings.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), maxClients)], nil
}

// count adds a connection to its client. applying begins the subjects on which commands are applied.
func count(client *messages.Client, c *natsserver.ConnInfo, applying string) {
	seen := func(at time.Time) {
		client.LastSeen = max(client.LastSeen, runevents.Timestamp(at))
	}
	if c.Stop != nil {
		seen(*c.Stop)
		return
	}
	seen(c.LastActivity)
	client.Connections++
	if start := runevents.Timestamp(c.Start); client.Since == "" || start < client.Since {
		client.Since = start
	}
	for _, subject := range c.Subs {
		token, applies := strings.CutPrefix(subject, applying)
		if id, err := percent.Decode(token); applies && err == nil {
			client.Towns = append(client.Towns, id)
		}
	}
}
