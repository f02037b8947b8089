package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// hostsWait bounds the wait for the answer of another plugin.
const hostsWait = time.Second

// Host is a plugin that says that it hosts a town.
type Host struct {
	// TownID is the town, "" for all towns of the world.
	TownID string `json:"-"`
	// Name is the name of the plugin's connection to NATS, "" where it has none.
	Name string `json:"name,omitzero"`
}

// Hosts asks who hosts the towns of a world, with no towns who hosts all of them, and returns those
// that answer. Ask before Serve, which answers from then on: a command of a town that two plugins
// host is applied by both. A plugin that hosts all towns answers for each; one that hosts some is
// not found by a question about all. Plugins that do not know the question are not found either,
// and one that does not answer within a second counts as gone. The error is ErrMayNotAsk, or that
// of the connection (docs/plugin-protocol.md, "A town has one plugin").
func Hosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	if len(towns) == 0 {
		towns = []string{""}
	}
	var hosts []Host
	for _, townID := range towns {
		subject := hostsSubject(world, townID)
		asking, cancel := context.WithTimeout(ctx, hostsWait)
		msg, err := nc.RequestWithContext(asking, subject, nil)
		cancel()
		last := nc.LastError()
		denied := errors.Is(last, nats.ErrPermissionViolation) &&
			strings.Contains(last.Error(), subject)
		switch {
		case err == nil:
			host := Host{TownID: townID}
			_ = json.Unmarshal(msg.Data, &host) // it is there, whatever it says of itself
			hosts = append(hosts, host)
		case errors.Is(err, nats.ErrNoResponders):
		case denied:
			return hosts, fmt.Errorf("%w: %w", ErrMayNotAsk, last)
		case ctx.Err() != nil:
			return hosts, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return hosts, fmt.Errorf("plugin: who hosts %s cannot be asked: %w", subject, err)
		}
	}
	return hosts, nil
}

// AnswerHosts answers on nc that it hosts these towns of a world, or all, until the subscriptions
// or nc are closed. Serve does so. When it returns, the server knows the subscriptions; one that
// the connection's user may not have is an error of the connection alone.
func AnswerHosts(nc *nats.Conn, world string, towns ...string) ([]*nats.Subscription, error) {
	body, err := json.Marshal(Host{Name: nc.Opts.Name})
	if err != nil {
		return nil, fmt.Errorf("plugin: the name of the connection: %w", err)
	}
	subjects := map[string]bool{}
	for _, townID := range towns {
		subjects[hostsSubject(world, townID)] = true
	}
	if len(towns) == 0 {
		subjects[wire.HostsSubject(world, "*")] = true
	}
	var subs []*nats.Subscription
	for subject := range subjects {
		sub, err := nc.Subscribe(subject, func(msg *nats.Msg) { _ = msg.Respond(body) })
		if err != nil {
			return subs, fmt.Errorf("%w: %s: %w", ErrSubscribe, subject, err)
		}
		subs = append(subs, sub)
	}
	if err := nc.Flush(); err != nil {
		return subs, fmt.Errorf("%w: %w", ErrSubscribe, err)
	}
	return subs, nil
}

// hostsSubject returns the subject on which the plugin of a town, or with "" of all, is asked for.
func hostsSubject(world, townID string) string {
	if townID == "" {
		return wire.HostsSubject(world, wire.AllTownsToken)
	}
	return wire.HostsSubject(world, wire.TownToken(townID))
}
