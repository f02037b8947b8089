package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/wire"
)

// hostsTimeout bounds the wait for the answer of another plugin.
const hostsTimeout = time.Second

// Host is a plugin that hosts a town.
type Host struct {
	// TownID is the town; "" for an answer to a question about all towns, also of a plugin of some.
	TownID string `json:"-"`
	// Name is the name of the plugin's connection to NATS; "" if it has none.
	Name string `json:"name,omitzero"`
}

// Hosts asks who hosts the towns, or all towns of the world if none is given, and returns the
// plugins in the order of the towns. Ask before Serve: if a town has two plugins, both apply its
// commands (docs/plugin-protocol.md, "A town has one plugin"). A plugin of all towns answers for
// each town, and each plugin answers a question about all towns. A plugin that does not know the
// question, or does not answer within a second, is not found. The error is ErrMayNotAsk, or the
// connection's.
func Hosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	return hostsOf(ctx, nc, world, towns, nil)
}

// OtherHosts is Hosts without nc's own plugin, for a question after Serve. Two plugins that start
// at the same moment do not find each other before Serve, but at least one finds the other
// afterwards. A plugin that finds another should end, and start again after a random pause, since
// the other may do the same. Both may have applied commands meanwhile. If no other plugin answers,
// OtherHosts waits a second.
func OtherHosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	return hostsOf(ctx, nc, world, towns, nats.Header{wire.AskerHeader: {askerOf(nc)}})
}

func hostsOf(
	ctx context.Context, nc *nats.Conn, world string, towns []string, header nats.Header,
) ([]Host, error) {
	if len(towns) == 0 {
		towns = []string{""}
	}
	found := make([]*Host, len(towns))
	var asking errgroup.Group
	for i, townID := range towns {
		asking.Go(func() (err error) {
			found[i], err = hostOf(ctx, nc, world, townID, header)
			return err
		})
	}
	err := asking.Wait()
	var hosts []Host
	for _, host := range found {
		if host != nil {
			hosts = append(hosts, *host)
		}
	}
	return hosts, err
}

// hostOf returns the host of a town, nil for none.
func hostOf(
	ctx context.Context, nc *nats.Conn, world, townID string, header nats.Header,
) (*Host, error) {
	subject := hostsSubject(world, townID)
	asking, cancel := context.WithTimeout(ctx, hostsTimeout)
	defer cancel()
	msg, err := nc.RequestMsgWithContext(asking, &nats.Msg{Subject: subject, Header: header})
	last := nc.LastError()
	switch {
	case err == nil:
		host := &Host{TownID: townID}
		_ = json.Unmarshal(msg.Data, host) // an unreadable answer is a host too
		return host, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, nil
	case errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), subject):
		return nil, fmt.Errorf("%w: %w", ErrMayNotAsk, last)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("plugin: who hosts %s cannot be asked: %w", subject, err)
	}
	return nil, nil
}

// askerOf returns the id of a connection in its questions: the prefix of its reply subjects.
func askerOf(nc *nats.Conn) string {
	inbox := nc.NewRespInbox()
	return inbox[:strings.LastIndexByte(inbox, '.')]
}

// answerHosts answers questions about these towns of a world and about all towns, or about every town if
// none is given, until the subscriptions or nc are closed. It does not answer questions of nc's own
// OtherHosts. Serve calls it. When it returns, the server knows the subscriptions. Only the connection reports a
// missing permission.
func answerHosts(nc *nats.Conn, world string, towns ...string) ([]*nats.Subscription, error) {
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
	} else {
		subjects[hostsSubject(world, "")] = true
	}
	self := askerOf(nc)
	var subs []*nats.Subscription
	for subject := range subjects {
		sub, err := nc.Subscribe(subject, func(msg *nats.Msg) {
			if msg.Header.Get(wire.AskerHeader) != self {
				_ = msg.Respond(body)
			}
		})
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

// hostsSubject returns the subject of questions about a town, with "" about all towns.
func hostsSubject(world, townID string) string {
	if townID == "" {
		return wire.HostsSubject(world, wire.AllTownsToken)
	}
	return wire.HostsSubject(world, wire.TownToken(townID))
}
