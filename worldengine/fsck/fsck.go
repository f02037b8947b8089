package fsck

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Options are the settings of a check. Zero values mean the documented defaults.
type Options struct {
	// Repair makes the derived streams again from the log where they differ from it, and puts a
	// town back whose last message is not a commit. It changes no message of the log.
	Repair bool
	// MendTowns, with Repair, also puts a town back to its last readable record where that loses a
	// commit that a client may have been answered: see DamagedTown.
	MendTowns bool
	// Replay, with Repair, has the subjects of dead letters whose messages are to be made again
	// from the log, like what is missing. Each letter whose message is there then is removed
	// (RepairReport.LettersReplayed); one whose message is refused again stays.
	Replay []string
	// Patience is how long a derived stream may stand still before the end of the log until it
	// counts as incomplete; 10 s.
	Patience time.Duration
	// FetchWait is how long a check waits for messages that NATS counts and does not deliver,
	// because they were changed on its disk, before it looks behind them; 1 s.
	FetchWait time.Duration
	// MaxFindings is how many findings, and how many notes, a report holds; 100. All findings are
	// counted.
	MaxFindings int
	// Progress, where set, is called with each message of the log that was checked, and at the end
	// of the log, before the rest of the derived streams: the sequence, and the last one that the
	// check reads.
	Progress func(seq, end uint64)
	// Logger gets what the followers of a repair log; slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.FetchWait = cmp.Or(o.FetchWait, time.Second)
	o.MaxFindings = cmp.Or(o.MaxFindings, 100)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Run checks a world, and with Options.Repair repairs what it can and checks again: see the package
// comment. Servers may be running meanwhile: Run goes to the end that the log has when it begins,
// and waits for the derived streams to come to there. NATS answers no request that it denies the
// user: the caller, which NATS tells, ends ctx with that error as its cause, and so spares Run the
// wait for the answer.
//
// The report has all that is wrong with the world. The error is commitlog.ErrNoWorld or ErrFormat,
// commitlog.ErrLogUnavailable where the check or the repair could not be finished, or that of an
// invalid world name; a report that comes with an error is that of the check before the repair
// broke off.
func Run(ctx context.Context, nc *nats.Conn, world string, options Options) (*Report, error) {
	if err := wire.ValidateWorld(world); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	options = options.withDefaults()
	check := func(missing []string) (*worldCheck, error) {
		c := &worldCheck{world: world, nc: nc, js: js, options: options, missing: missing}
		return c, c.check(ctx)
	}
	c, err := check(options.Replay)
	if err != nil {
		return nil, err
	}
	report := c.report
	for round := 0; options.Repair && round < repairRounds && c.repairable(); round++ {
		if report.Repair == nil {
			report.Repair = &RepairReport{}
		}
		if err := c.repair(ctx, report.Repair); err != nil {
			return report, err
		}
		if c, err = check(nil); err != nil { // what is given up again is a dead letter to it
			return report, err
		}
		report.Repair.After = c.report
	}
	if len(c.back) > 0 && options.Repair {
		if report.Repair == nil { // nothing was missing any more
			after := *report
			report.Repair = &RepairReport{After: &after}
		}
		err = c.removeLetters(ctx, report.Repair)
	}
	return report, err
}
