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

// Host is a plugin that says that it hosts a town.
type Host struct {
	// TownID is the town, "" for all towns of the world.
	TownID string `json:"-"`
	// Name is the name of the plugin's connection to NATS, "" where it has none.
	Name string `json:"name,omitzero"`
}

// Hosts asks who hosts the towns of a world, with no towns who hosts all of them, and returns those
// that answer, in the order of the towns. Ask before Serve, which answers from then on, and
// OtherHosts after it: a command of a town that two plugins host is applied by both. A plugin that
// hosts all towns answers for each; one that hosts some is not found by a question about all.
// Plugins that do not know the question are not found either, and one that does not answer within a
// second counts as gone. The error is ErrMayNotAsk, or that of the connection
// (docs/plugin-protocol.md, "A town has one plugin").
func Hosts(ctx context.Context, nc *nats.Conn, world string, towns ...string) ([]Host, error) {
	return hostsOf(ctx, nc, world, towns, nil)
}

// OtherHosts is Hosts without what nc itself hosts. Ask it after Serve: of two plugins that start
// at one moment neither finds the other before, and one of them at least does then. Commands may
// have been applied meanwhile. One that finds another ends, and begins again after a random pause,
// since the other may do the same. Where nc is alone it takes a second, since no other plugin
// answers.
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

// maxAsked bounds about how many towns is asked at once.
const maxAsked = 256

// hostOf returns who hosts a town, nil for none.
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

// askerOf returns what names a connection in its questions: the prefix of its reply subjects, which
// no other one has.
func askerOf(nc *nats.Conn) string {
	inbox := nc.NewRespInbox()
	return inbox[:strings.LastIndexByte(inbox, '.')]
}

// AnswerHosts answers on nc that it hosts these towns of a world, or all, until the subscriptions
// or nc are closed; OtherHosts of nc gets no answer. Serve does so. When it returns, the server
// knows the subscriptions; one that the connection's user may not have is an error of the
// connection alone.
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

// hostsSubject returns the subject on which the plugin of a town, or with "" of all, is asked for.
func hostsSubject(world, townID string) string {
	if townID == "" {
		return wire.HostsSubject(world, wire.AllTownsToken)
	}
	return wire.HostsSubject(world, wire.TownToken(townID))
}
