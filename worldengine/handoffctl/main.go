// Package handoffctl is the program handoffctl: its command line and its output. Command handoffctl is Main.
package handoffctl

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/wire"
)

// Main runs the program, and ends the process with its exit status.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		in: stdin, out: stdout, err: stderr,
		terminal: isTerminal(stdout), colours: colourful(stdout, os.Getenv),
	}
	err := a.runLine(ctx, args)
	for _, nc := range a.opened {
		nc.Close()
	}
	if err != nil {
		return a.fail(err)
	}
	return exitOK
}

// runLine runs the command of a command line.
func (a *app) runLine(ctx context.Context, args []string) error {
	var line commandLine
	a.flags = &line.Global
	parser := newParser(&line, a.out, a.err, func(int) { a.helped = true })
	cmdline.UnsetEmpty(parser.Model)
	command, err := parser.Parse(args)
	switch {
	case a.helped:
		return nil
	case err != nil:
		return notUnderstood(err)
	}
	command.BindTo(ctx, (*context.Context)(nil))
	if err := command.BindToProvider(a.connect); err != nil {
		return err
	}
	return command.Run(a)
}

// notUnderstood is the error of a command line that the parser refuses.
func notUnderstood(err error) error {
	return usagef("%s\nTry 'handoffctl --help'.", err)
}

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
	nc, err := a.dial("handoffctl")
	if err != nil {
		return nil, err
	}
	a.server = a.client(nc)
	return a.server, nil
}

// ask sends a request of a verb. It prints the reply as it came, or for people by a template of answers.
func ask[Reply any](ctx context.Context, a *app, verb wire.Verb, request any, template string) error {
	return askFor(ctx, a, verb, request, template, func(reply *Reply) any { return reply })
}

// askFor is ask with data for the template that has more than the reply.
func askFor[Reply any](
	ctx context.Context, a *app, verb wire.Verb, request any, template string, data func(*Reply) any,
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
	return a.print(raw, template, data(&reply))
}

// client returns a client of the world.
func (a *app) client(nc *nats.Conn) *client.Client {
	return &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}
}

// dial makes one more connection to the server, under a name that its operator sees.
func (a *app) dial(name string, more ...nats.Option) (*nats.Conn, error) {
	return a.dialBy(natsconn.Options.Connect, name, more)
}

// dialStreams makes a connection that may read and write the streams of the world. Without
// credentials it uses the key of the server's local operator.
func (a *app) dialStreams(name string, more ...nats.Option) (*nats.Conn, error) {
	return a.dialBy(natsconn.Options.ConnectOperator, name, more)
}

// inboxPrefix matches the beginnings of the subjects on which the service answers.
var inboxPrefix = regexp.MustCompile(`^_INBOX(_[^\s.*>]+)?(\.[^\s.*>]+)*$`)

func (a *app) dialBy(
	connect func(natsconn.Options, string, string, ...nats.Option) (*nats.Conn, error),
	name string, more []nats.Option,
) (*nats.Conn, error) {
	if err := a.flags.Connection.Check(); err != nil {
		return nil, usage(err)
	}
	if prefix := a.flags.Connection.Inbox; prefix != "" && !inboxPrefix.MatchString(prefix) {
		return nil, usagef("--inbox-prefix must be _INBOX, or _INBOX_<user> of a server with users, "+
			"not %q: the server answers nowhere else", prefix)
	}
	if strings.HasPrefix(a.flags.Server, "http://") || strings.HasPrefix(a.flags.Server, "https://") {
		return nil, usagef("--server (or $NATS_URL) must be the address of NATS, which handoffd prints "+
			"behind ready, not %s of the console", natsconn.RedactURLs(a.flags.Server))
	}
	// NATS writes errors to standard error by default; the commands print their own.
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	nc, err := connect(a.flags.Connection.WithUserInbox(a.flags.Server), a.flags.Server, name,
		append([]nats.Option{quiet}, more...)...)
	if errors.Is(err, natsconn.ErrOperatorKey) {
		return nil, unavailable("OPERATOR_KEY", err)
	}
	if err == nil {
		a.opened = append(a.opened, nc)
	}
	if err == nil && nc.IsConnected() { // or it retries
		err = nc.Flush() // afterwards, the connection knows how large its messages may be
	}
	if err != nil {
		return nil, unavailable("CONNECTION", err)
	}
	return nc, nil
}
