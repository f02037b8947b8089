package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"

	"worldengine/cmd/handoffctl/internal/bench"
	"worldengine/worldengine"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// benchCommand measures.
type benchCommand struct {
	bench.Settings `embed:""`

	Sync server.Sync `help:"When the private server brings a commit to the disk: every two seconds (interval) or before it is answered (always)." enum:"interval,always" default:"interval"`
	Join bool        `help:"Measure the server of --server instead of a private one. The towns of the run are removed from its world in the end, if this user may remove towns."`
}

func (benchCommand) Help() string {
	return `Measures executed handoffs per second and their latencies, on a private server with a data
directory below $TMPDIR, or with --join on a running one, which must have the default rules. Two
ratios make runs comparable: to plain NATS request-reply with bodies of the same sizes, and to bare
guarded appends of a message as large as a commit, to a stream that is removed in the end. The
latter takes a client that may use the streams. With --join the processor time of the server alone
is printed too.

Each worker drives its own towns, one request at a time. The rules predict every state, so every
answer is checked, and at the end every town; a wrong one makes the exit status 1.

With --rate the handoffs are sent at that rate, and a latency counts from when its handoff is due.
With --phases the last phase of a long run can be compared with the first.

Example:

    handoffctl bench --duration 10s --rate 1000`
}

func (c *benchCommand) Run(ctx context.Context, a *app) (err error) {
	config := bench.Config{
		Settings: c.Settings, World: a.flags.World, Timeout: a.flags.Timeout,
		Connect: func(name string) (*nats.Conn, error) { return a.dial(name) },
		Streams: func(name string) (*nats.Conn, error) { return a.dialStreams(name) },
	}
	if err := errors.Join(config.Validate(), wire.ValidateWorld(config.World)); err != nil {
		return usagef("%s", sentence(err))
	}
	var report *bench.Report
	if c.Join {
		report, err = bench.Run(ctx, config)
	} else {
		report, err = c.runPrivate(ctx, config)
	}
	if err != nil {
		return err
	}
	err = a.print(report, func(t table) { _ = report.WriteText(t) })
	if err == nil && report.Wrong > 0 {
		return failedf("wrong answers: %d", report.Wrong)
	}
	return err
}

// runPrivate measures a server that it starts in this process, and ends.
func (c *benchCommand) runPrivate(
	ctx context.Context, config bench.Config,
) (_ *bench.Report, err error) {
	data, err := os.MkdirTemp("", "handoffctl-bench-")
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	srv, err := server.Start(ctx, server.Config{
		Listen: "127.0.0.1:0", Data: data, Sync: c.Sync,
		Engine: worldengine.Config{World: config.World},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("the private server does not start: %w", err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.DefaultDrainTimeout)
		defer cancel()
		err = errors.Join(err, srv.Close(stop))
	}()
	config.Connect = func(name string) (*nats.Conn, error) {
		return natsconn.Options{}.Connect(srv.URL(), name)
	}
	config.Streams = func(name string) (*nats.Conn, error) {
		return natsconn.Options{NKey: srv.OperatorKey()}.Connect(srv.URL(), name)
	}
	report, err := bench.Run(ctx, config)
	if err != nil {
		return nil, err
	}
	report.Sync, report.InProcess = string(c.Sync), true
	return report, nil
}
