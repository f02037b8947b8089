package embedded

import (
	"cmp"
	"slices"
	"strings"

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
	all := clients{}
	for _, one := range more {
		all.add(one)
	}
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
		one := clientOf(c, wire.ApplySubject(world, ""))
		one.User, one.Role = user, string(role)
		all.add(one)
	}
	list := []messages.Client{}
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

// clients are clients by their users and names.
type clients map[[2]string]*messages.Client

// add adds a client, or its connections if the client is known.
func (all clients) add(one messages.Client) {
	key := [2]string{one.User, one.Name}
	known := all[key]
	if known == nil {
		all[key] = &one
		return
	}
	if known.Since == "" || one.Since != "" && one.Since < known.Since {
		known.Since = one.Since
	}
	known.LastSeen = max(known.LastSeen, one.LastSeen)
	known.Connections += one.Connections
	known.Towns = append(known.Towns, one.Towns...)
}

// clientOf returns the client of a connection, without its user. applying begins the subjects on which commands
// are applied.
func clientOf(c *natsserver.ConnInfo, applying string) messages.Client {
	if c.Stop != nil {
		return messages.Client{Name: c.Name, LastSeen: runevents.Timestamp(*c.Stop)}
	}
	client := messages.Client{
		Name: c.Name, Connections: 1, Since: runevents.Timestamp(c.Start), LastSeen: runevents.Timestamp(c.LastActivity),
	}
	for _, subject := range c.Subs {
		token, applies := strings.CutPrefix(subject, applying)
		if id, err := percent.Decode(token); applies && err == nil {
			client.Towns = append(client.Towns, id)
		}
	}
	return client
}
