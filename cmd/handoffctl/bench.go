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
	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/worldengine"
	"worldengine/worldengine/server"
)

// benchCommand measures.
type benchCommand struct {
	Towns       int           `help:"How many towns are driven." default:"64"`
	Concurrency int           `help:"How many requests are in flight; at most one a town." default:"64"`
	Connections int           `help:"How many client connections they share." default:"4"`
	Duration    time.Duration `help:"How long each of the two phases is." default:"5s"`
	Rate        float64       `help:"How many handoffs a second are offered; 0 for as many as are answered." default:"0"`
	Mix         string        `help:"What share of the handoffs ends in which status." default:"executed=100" placeholder:"STATUS=SHARE,…"`
	Sync        server.Sync   `help:"When the private server brings a commit to the disk: every two seconds (interval) or before it is answered (always)." enum:"interval,always" default:"interval"`
	Projector   bool          `help:"Let the private server project the run events too."`
	Join        bool          `help:"Measure the server of --server instead of a private one. The towns of the run stay in its world."`
}

// Help is the command's long help.
func (benchCommand) Help() string {
	return `Starts a private server with a data directory below $TMPDIR, or joins one with --join, and prints of one
run: plain NATS request-reply per second (bodies as large as a handoff and a result, the responder on
a connection of its own), executed handoffs per second, their latencies, and the ratio.

Each worker drives towns of its own, one request at a time. The state that a handoff leaves follows
from the rules, so every answer is known before it is asked for and is held against that, and at the
end every town is compared with what its answers said: a wrong one makes the exit status 1. The
handoffs are made ahead; when they run out, a worker makes more and the time counts as a pause. A
server that is joined must have the default rules.

With --rate the handoffs come at that rate, and latencies count from when each is due. Where the server
projects run events (--projector), how far that is behind is asked for all along.

In the mix: executed is a casual talk, which never exhausts a town; duplicate sends the last accepted
handoff again; stale was made an epoch ago; rejected asks for a project that is not there; failed
advances a blocked project.

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
		World: a.flags.World, Towns: c.Towns, Concurrency: c.Concurrency, Connections: c.Connections,
		Duration: c.Duration, Rate: c.Rate, Mix: mix, Timeout: a.flags.Timeout,
		Connect: func(name string) (*nats.Conn, error) { return a.dial(name) },
	}
	if err := errors.Join(config.Validate(), worldengine.ValidateWorld(config.World)); err != nil {
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
		return &failedError{fmt.Sprintf("%d answers were wrong", report.Wrong)}
	}
	return err
}

// runPrivate measures a server that it starts in this process, and ends.
func (c *benchCommand) runPrivate(ctx context.Context, config bench.Config) (_ *bench.Report, err error) {
	data, err := os.MkdirTemp("", "handoffctl-bench-")
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	srv, err := server.Start(ctx, server.Config{
		Listen: "127.0.0.1:0", Data: data, Sync: c.Sync,
		Engine: worldengine.Config{World: config.World, Projector: c.Projector}, Logger: slog.New(slog.DiscardHandler),
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
		nc, err := nats.Connect(srv.URL(), nats.Name(name))
		if err != nil {
			return nil, &client.UnavailableError{Code: "CONNECTION", Message: err.Error(), Cause: err}
		}
		return nc, nil
	}
	report, err := bench.Run(ctx, config)
	if err != nil {
		return nil, err
	}
	report.Sync, report.InProcess = string(c.Sync), true
	return report, nil
}
