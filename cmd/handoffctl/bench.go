package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/cmd/handoffctl/internal/bench"
	"worldengine/worldengine"
	"worldengine/worldengine/client"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// benchCommand measures.
type benchCommand struct {
	Towns       int           `help:"How many towns are driven." default:"64"`
	Concurrency int           `help:"How many requests are in flight; at most one a town." default:"64"`
	Connections int           `help:"How many client connections they share." default:"4"`
	Duration    time.Duration `help:"How long each phase is: the echo, the handoffs, the bare appends. Without --rate a phase of handoffs has one for each town at least." default:"5s"`
	Phases      int           `help:"How many phases of handoffs there are, one after the other on the same towns." default:"1"`
	Rate        float64       `help:"How many handoffs a second are offered; 0 for as many as are answered." default:"0"`
	Mix         string        `help:"What share of the handoffs ends in which status." default:"executed=100" placeholder:"STATUS=SHARE,…"`
	Sync        server.Sync   `help:"When the private server brings a commit to the disk: every two seconds (interval) or before it is answered (always)." enum:"interval,always" default:"interval"`
	Projector   bool          `help:"Let the private server project the run events too."`
	Join        bool          `help:"Measure the server of --server instead of a private one. The towns of the run stay in its world."`
}

// Help is the command's long help.
func (benchCommand) Help() string {
	return `Starts a private server with a data directory below $TMPDIR, or measures a running one
with --join. It prints plain NATS requests per second (bodies as large as a handoff and a result,
the responder on a connection of its own), executed handoffs per second, their latencies, and the
ratio of the two; and bare guarded appends per second of a message as large as a commit, to a stream
of the same server that is removed in the end, and the ratio to these: no handoff is faster than its
append. That takes a client that may use the streams. With --join it prints the processor time of
the server alone too.

Each worker drives its own towns, one request at a time. The state that a handoff leaves follows
from the rules, so the benchmark knows every answer beforehand and compares; at the end it compares
every town with its answers. A wrong answer makes the exit status 1. The handoffs are made
beforehand; when they run out, a worker makes more, and that time counts as a pause. A server that
is joined must have the default rules.

With --rate the handoffs are sent at that rate, and a latency counts from when its handoff is due.
Where the server projects run events (--projector), the benchmark also records how far the
projection is behind.

With --phases there are several phases of handoffs, to compare the last of a long run with the
first. What is printed beside them of handoffs is of the last one.

In the mix: executed is a casual talk, which never exhausts a town; duplicate sends the last
accepted handoff again; stale was made an epoch ago; rejected asks for a project that does not
exist; failed advances a blocked project.

Example:

    handoffctl bench --duration 10s --mix executed=80,duplicate=10,stale=5,rejected=5`
}

// Run measures.
func (c *benchCommand) Run(ctx context.Context, a *app) error {
	mix, err := bench.ParseMix(c.Mix)
	if err != nil {
		return usagef("--mix: %s", sentence(err))
	}
	config := bench.Config{
		World: a.flags.World, Towns: c.Towns, Concurrency: c.Concurrency,
		Connections: c.Connections,
		Duration:    c.Duration, Phases: c.Phases, Rate: c.Rate, Mix: mix, Timeout: a.flags.Timeout,
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
	if a.json() {
		err = a.printJSON(report)
	} else {
		err = report.WriteText(a.out)
	}
	if err == nil && report.Wrong > 0 {
		return &failedError{"wrong answers: " + fmt.Sprint(report.Wrong)}
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
		Engine: worldengine.Config{World: config.World, Projector: c.Projector},
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
		nc, err := natsconn.Options{}.Connect(srv.URL(), name)
		if err != nil {
			return nil, &client.UnavailableError{Code: "CONNECTION",
				Message: err.Error(), Cause: err}
		}
		return nc, nil
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
