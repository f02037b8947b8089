package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// hostsWait bounds the wait for the answer of another plugin.
const hostsWait = time.Second

// Host is a plugin that hosts a town.
type Host struct {
	// TownID is the town, "" for all towns of the world.
	TownID string `json:"-"`
	// Name is the name of the plugin's connection to NATS, "" if it has none.
	Name string `json:"name,omitzero"`
}

// Hosts returns the plugins that say that they host the towns, or without towns all of the world,
// in the order of the towns. A command of a town with two plugins is applied by both. Ask before
// Serve, which answers from then on; after it ask OtherHosts. A plugin that hosts all towns answers
// for each; one that hosts some is not found by a question about all. Plugins that do not know the
// question are not found, and one that does not answer within a second counts as gone. The error is
// ErrMayNotAsk, or the connection's (docs/plugin-protocol.md, "A town has one plugin").
func Hosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	return hostsOf(ctx, nc, world, towns, nil)
}

// OtherHosts is Hosts without nc's own plugin. Ask it after Serve: two plugins that start at one
// moment do not find each other before, but at least one does then. It ends, and begins again after
// a random pause, since the other may do the same. Both may have applied commands meanwhile. If nc
// is alone it takes a second, since no other plugin answers.
func OtherHosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	return hostsOf(ctx, nc, world, towns, nats.Header{wire.AskerHeader: {askerOf(nc)}})
}

// hostsOf asks, with a header, who hosts towns.
func hostsOf(
	ctx context.Context, nc *nats.Conn, world string, towns []string, header nats.Header,
) ([]Host, error) {
	if len(towns) == 0 {
		towns = []string{""}
	}
	found, failed := make([]*Host, len(towns)), make([]error, len(towns))
	room := make(chan struct{}, maxAsked)
	var asking sync.WaitGroup
	for i, townID := range towns {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			found[i], failed[i] = hostOf(ctx, nc, world, townID, header)
		})
	}
	asking.Wait()
	var hosts []Host
	for i := range towns {
		if failed[i] != nil {
			return hosts, failed[i]
		}
		if found[i] != nil {
			hosts = append(hosts, *found[i])
		}
	}
	return hosts, nil
}

// maxAsked bounds the questions at once.
const maxAsked = 256

// hostOf returns the host of a town, nil for none.
func hostOf(
	ctx context.Context, nc *nats.Conn, world, townID string, header nats.Header,
) (*Host, error) {
	subject := hostsSubject(world, townID)
	asking, cancel := context.WithTimeout(ctx, hostsWait)
	defer cancel()
	msg, err := nc.RequestMsgWithContext(asking, &nats.Msg{Subject: subject, Header: header})
	last := nc.LastError()
	switch {
	case err == nil:
		host := &Host{TownID: townID}
		_ = json.Unmarshal(msg.Data, host) // it is there, whatever it says of itself
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

// askerOf identifies a connection in its questions: by the prefix of its reply subjects, which is
// unique.
func askerOf(nc *nats.Conn) string {
	inbox := nc.NewRespInbox()
	return inbox[:strings.LastIndexByte(inbox, '.')]
}

// AnswerHosts answers on nc that it hosts these towns of a world, or all, until the subscriptions
// or nc are closed; OtherHosts of nc gets no answer. Serve calls it. When it returns, the server
// knows the subscriptions; a missing permission is only an error of the connection.
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

// hostsSubject returns the subject for asking who hosts a town, or with "" all.
func hostsSubject(world, townID string) string {
	if townID == "" {
		return wire.HostsSubject(world, wire.AllTownsToken)
	}
	return wire.HostsSubject(world, wire.TownToken(townID))
}
