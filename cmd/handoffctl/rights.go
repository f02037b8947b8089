package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// whoIs asks who the user of a connection is; the zero identity where no server of the world runs.
func (a *app) whoIs(ctx context.Context, nc *nats.Conn) (messages.Identity, error) {
	server := &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}
	id, err := server.WhoAmI(ctx)
	if client.IsCode(err, "NO_RESPONDERS") {
		return messages.Identity{}, nil
	}
	return id, err
}

// mustReadStreams returns an error where the user's role does not let it read the streams of the
// world, which NATS reports by not answering. doing says what the user may not do.
func (a *app) mustReadStreams(ctx context.Context, nc *nats.Conn, doing string) error {
	id, err := a.whoIs(ctx, nc)
	if err != nil {
		return err
	}
	if mayReadStreams(id.Role) {
		return nil
	}
	return &client.UnavailableError{Code: "PERMISSION_DENIED", Message: fmt.Sprintf(
		"the user %s may not %s: that reads the streams of the world, which takes the role "+
			"operator, and it has the role %s",
		cmp.Or(id.User, "of this connection"), doing, id.Role)}
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
