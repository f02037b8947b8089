package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/wire"
)

// app is the environment of a command: its flags, its input and its outputs.
type app struct {
	flags    *globalFlags
	in       io.Reader
	out, err io.Writer
	terminal bool // out is a terminal: only there ids and payloads are cut
	colours  bool // out shows colours
	helped   bool // help was printed

	opened []*nats.Conn   // which run closes
	server *client.Client // nil until connect
}

// connect connects to the server, once. Commands get the client as an argument of Run, or call
// connect after their own checks.
func (a *app) connect() (*client.Client, error) {
	if a.server != nil {
		return a.server, nil
	}
	if a.flags.Timeout <= 0 {
		return nil, usagef("--timeout must be above 0, not %s", a.flags.Timeout)
	}
	nc, err := a.dial("handoffctl")
	if err != nil {
		return nil, err
	}
	a.server = a.client(nc)
	return a.server, nil
}

// ask sends a request of a verb, and prints the reply as it came, or text for people.
func ask[Reply any](
	ctx context.Context, a *app, verb wire.Verb, request any, text func(table, *Reply),
) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	var reply Reply
	raw, err := server.Ask(ctx, verb, request, &reply)
	if err != nil {
		return err
	}
	return a.print(raw, func(t table) { text(t, &reply) })
}

// client returns a client of the world.
func (a *app) client(nc *nats.Conn) *client.Client {
	return &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}
}

// dial makes one more connection to the server, under a name that its operator sees.
func (a *app) dial(name string, more ...nats.Option) (*nats.Conn, error) {
	return a.dialBy(natsconn.Options.Connect, name, more)
}

// dialStreams makes a connection that may read and write the streams of the world: without
// credentials, with the key of the server's local operator.
func (a *app) dialStreams(name string, more ...nats.Option) (*nats.Conn, error) {
	return a.dialBy(natsconn.Options.ConnectOperator, name, more)
}

func (a *app) dialBy(
	connect func(natsconn.Options, string, string, ...nats.Option) (*nats.Conn, error),
	name string, more []nats.Option,
) (*nats.Conn, error) {
	if err := wire.ValidateWorld(a.flags.World); err != nil {
		return nil, usagef("--world: %s", sentence(err))
	}
	if err := a.flags.Connection.Check(); err != nil {
		return nil, usagef("%s", sentence(err))
	}
	// NATS writes errors to standard error by default; the commands print their own.
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := connect(a.flags.Connection.WithUserInbox(a.flags.Server), a.flags.Server, name,
		append(more, quiet)...)
	if errors.Is(err, natsconn.ErrOperatorKey) {
		return nil, unavailable("OPERATOR_KEY", err)
	}
	if err != nil {
		return nil, unavailable("CONNECTION", err)
	}
	a.opened = append(a.opened, nc)
	return nc, checkInbox(nc)
}

// checkInbox returns an error if the user may not subscribe to its inboxes, which every request
// requires.
func checkInbox(nc *nats.Conn) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = nc.Flush() // after any refusal
	}
	if err != nil {
		return unavailable("CONNECTION", err)
	}
	if denied := nc.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		return unavailablef(permissionDenied, denied,
			"this user may not read answers at %s: give the prefix of its own inboxes, "+
				"--inbox-prefix _INBOX_<user> ($NATS_INBOX_PREFIX), where <user> is its name in "+
				"the access file; handoffctl knows that name from --user, not from --nkey, "+
				"--creds or --tlscert", inbox)
	}
	return nil
}

// whoIs asks who the user of a connection is; the zero identity if no server of the world runs.
func (a *app) whoIs(ctx context.Context, nc *nats.Conn) (messages.Identity, error) {
	id, err := a.client(nc).WhoAmI(ctx)
	if client.IsCode(err, "NO_RESPONDERS") {
		return messages.Identity{}, nil
	}
	return id, err
}

// mayReadStreams returns an error if a user's role does not let it read the streams of the world,
// which NATS reports by not answering. doing names the action that requires that right.
func mayReadStreams(id *messages.Identity, doing string) error {
	switch wire.Role(id.Role) {
	case "", wire.Operator, wire.Engine:
		return nil
	}
	return unavailablef(permissionDenied, nil, "the user %s may not %s: that reads the streams of "+
		"the world, which takes the role operator, and it has the role %s",
		cmp.Or(id.User, "of this connection"), doing, id.Role)
}

// openStreams is dialStreams for an action that reads whole streams.
func (a *app) openStreams(
	ctx context.Context, name, doing string, more ...nats.Option,
) (*nats.Conn, error) {
	nc, err := a.dialStreams(name, more...)
	if err != nil {
		return nil, err
	}
	id, err := a.whoIs(ctx, nc)
	if err == nil {
		err = mayReadStreams(&id, doing)
	}
	return nc, err
}

// streamError returns the error of a command that works on the streams of the world: denied is the
// refusal of NATS, if any, and doing the refused action; other errors get the code.
func (a *app) streamError(err, denied error, code, doing string) error {
	switch {
	case errors.Is(err, commitlog.ErrNoWorld):
		return unavailablef("NO_WORLD", err, "there is no world %s on this server: check --world "+
			"and --server", a.flags.World)
	case errors.Is(denied, nats.ErrPermissionViolation):
		return unavailablef(permissionDenied, denied, "this user may not %s: %s", doing, denied)
	}
	return unavailable(code, err)
}

// heedViolations returns a context that ends with the refusal as its cause when NATS does not let
// the user of a connection publish on a subject: the request itself would get no answer.
func heedViolations(ctx context.Context, nc *nats.Conn) context.Context {
	bounded, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return bounded
}
