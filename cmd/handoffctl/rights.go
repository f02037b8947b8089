package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// whoIs asks who the user of a connection is; the zero identity if no server of the world runs.
func (a *app) whoIs(ctx context.Context, nc *nats.Conn) (messages.Identity, error) {
	server := &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}
	id, err := server.WhoAmI(ctx)
	if client.IsCode(err, "NO_RESPONDERS") {
		return messages.Identity{}, nil
	}
	return id, err
}

// mayReadStreams reports whether NATS lets a role read all streams of the world.
func mayReadStreams(role string) bool {
	return role == "" || role == string(wire.Operator) || role == string(wire.Engine)
}

// mustReadStreams returns an error if the user's role does not let it read the streams of the
// world, which NATS reports by not answering. doing names the action that takes that right.
func (a *app) mustReadStreams(ctx context.Context, nc *nats.Conn, doing string) error {
	id, err := a.whoIs(ctx, nc)
	if err != nil {
		return err
	}
	if mayReadStreams(id.Role) {
		return nil
	}
	return &client.UnavailableError{Code: permissionDenied, Message: fmt.Sprintf(
		"the user %s may not %s: that reads the streams of the world, which takes the role "+
			"operator, and it has the role %s",
		cmp.Or(id.User, "of this connection"), doing, id.Role)}
}

// streamError returns the error of a command that works on the streams of the world: denied is the
// refusal of NATS, if any, and doing the refused action; other errors get the code.
func (a *app) streamError(err, denied error, code, doing string) error {
	switch {
	case errors.Is(err, commitlog.ErrNoWorld):
		return noWorld(a, err)
	case errors.Is(denied, nats.ErrPermissionViolation):
		return &client.UnavailableError{Code: permissionDenied, Cause: denied,
			Message: "this user may not " + doing + ": " + denied.Error()}
	}
	return &client.UnavailableError{Code: code, Message: sentence(err), Cause: err}
}

// noWorld returns the error of a server that has no streams of the world.
func noWorld(a *app, err error) error {
	return &client.UnavailableError{Code: "NO_WORLD", Cause: err, Message: "there is no world " +
		a.flags.World + " on this server: check --world and --server"}
}

// heedViolations ends the context that it returns when NATS says that the user of a connection may
// not publish on a subject: the request itself would get no answer. violated returns what NATS
// said.
func heedViolations(
	ctx context.Context, nc *nats.Conn,
) (bounded context.Context, violated func() error) {
	bounded, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return bounded, func() error {
		if err := context.Cause(bounded); errors.Is(err, nats.ErrPermissionViolation) {
			return err
		}
		return nil
	}
}
