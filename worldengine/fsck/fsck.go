package fsck

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Options are a check's settings. Zero values mean the documented defaults.
type Options struct {
	// Repair puts towns back whose last message is not a commit. It changes no message of the log.
	Repair bool
	// MendTowns, with Repair, also puts a town back to its last readable record if that loses a
	// commit that a client may have been answered: see DamagedTown.
	MendTowns bool
	// Index is the directory of an index of the world, whose file is compared with one made of the
	// log; "" compares none.
	Index string
	// FetchWait bounds the wait for messages that NATS counts and does not deliver, because they
	// were changed on its disk; 1 s.
	FetchWait time.Duration
	// MaxFindings bounds the findings, and the notes, in a report; 100. All findings are counted.
	MaxFindings int
	// Progress, unless nil, is called with each checked message of the log, and at its end: the
	// sequence, and the last one to check.
	Progress func(seq, end uint64)
	// Logger logs the alerts of a repair; slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FetchWait = cmp.Or(o.FetchWait, time.Second)
	o.MaxFindings = cmp.Or(o.MaxFindings, 100)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Run checks a world, and with Options.Repair puts towns back and checks again: see the package
// comment. Servers may be running meanwhile: Run goes to the log's end at its start. NATS answers
// no request that it denies the user: the caller, which NATS informs, ends ctx with that error as
// its cause, so that Run need not wait for the answer.
//
// The report has every finding. The error is commitlog.ErrNoWorld or ErrFormat,
// commitlog.ErrLogUnavailable if the check or the repair was not finished, or an invalid world
// name's; a report with an error is from before the repair broke off.
func Run(ctx context.Context, nc *nats.Conn, world string, options Options) (*Report, error) {
	if err := wire.ValidateWorld(world); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	check := func() (*worldCheck, error) {
		c := &worldCheck{world: world, nc: nc, js: js, options: options.withDefaults()}
		return c, c.check(ctx)
	}
	c, err := check()
	if err != nil {
		return nil, err
	}
	report := c.report
	if !options.Repair || !slices.ContainsFunc(report.Damaged, c.mendable) {
		return report, nil
	}
	report.Repair = new(RepairReport)
	if report.Repair.TownsMended, err = c.mendTowns(ctx); err != nil {
		return report, err
	}
	if c, err = check(); err == nil {
		report.Repair.After = c.report
	}
	return report, err
}
