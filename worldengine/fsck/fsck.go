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

// Options are the settings of a check. Zero values mean the documented defaults.
type Options struct {
	// Repair puts a town back whose last message is not a commit. It changes no message of the log.
	Repair bool
	// MendTowns, with Repair, also puts a town back to its last readable record if that loses a
	// commit that a client may have been answered: see DamagedTown.
	MendTowns bool
	// Index is the directory of an index of the world, whose file is compared with one that is made
	// of the log; "" compares none.
	Index string
	// FetchWait is how long a check waits for messages that NATS counts and does not deliver,
	// because they were changed on its disk, before it looks behind them; 1 s.
	FetchWait time.Duration
	// MaxFindings is how many findings, and how many notes, a report holds; 100. All findings are
	// counted.
	MaxFindings int
	// Progress, unless nil, is called with each message of the log that was checked, and at the end
	// of the log: the sequence, and the last one that the check reads.
	Progress func(seq, end uint64)
	// Logger gets the alerts that a repair raises; slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FetchWait = cmp.Or(o.FetchWait, time.Second)
	o.MaxFindings = cmp.Or(o.MaxFindings, 100)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Run checks a world, and with Options.Repair puts towns back and checks again: see the package
// comment. Servers may be running meanwhile: Run goes to the end that the log has when it begins.
// NATS answers no request that it denies the user: the caller, which NATS tells, ends ctx with that
// error as its cause, and so spares Run the wait for the answer.
//
// The report has all that is wrong with the world. The error is commitlog.ErrNoWorld or ErrFormat,
// commitlog.ErrLogUnavailable if the check or the repair could not be finished, or the one of an
// invalid world name; a report that comes with an error is of the check before the repair broke
// off.
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
