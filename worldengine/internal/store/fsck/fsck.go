package fsck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// Options are a check's settings. Zero values mean the documented defaults.
type Options struct {
	// Repair puts towns back whose last message is not a commit. It changes no message of the log.
	Repair bool
	// RepairTowns, with Repair, also puts a town back to its last readable record if that loses a
	// commit. A client may have got the answer for that commit: see DamagedTown.
	RepairTowns bool
	// Index is the directory of an index of the world. Run compares its file with the log; ""
	// compares none.
	Index string
	// Replicas compares the log of all nodes of a cluster with each other.
	Replicas bool
	// MaxFindings bounds the findings, and the notes, in a report; 100 if 0. All findings are
	// counted.
	MaxFindings int
	// Progress, unless nil, is called with the sequence of each checked message, and at the end of
	// the log. end is the last sequence to check.
	Progress func(seq, end uint64)
	// Logger logs the alerts of a repair; slog.Default() if nil.
	Logger *slog.Logger
}

// Run checks a world, and with Options.Repair puts towns back and checks again: see the package
// comment. Servers may be running meanwhile: Run checks the messages that the log has at the start.
// If NATS denies the user a request, NATS sends no answer, but reports an error to the connection.
// The caller should then end ctx with that error as its cause: else Run waits for an answer.
//
// The report has the findings. The error is commitlog.ErrNoWorld or ErrFormat,
// commitlog.ErrLogUnavailable if the check or the repair was not finished, or the error of an
// invalid world name. A report beside an error was made before the repair broke off.
func Run(ctx context.Context, nc *nats.Conn, world string, options Options) (*Report, error) {
	if err := wire.ValidateWorld(world); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("fsck: JetStream: %w", err)
	}
	options.MaxFindings = cmp.Or(options.MaxFindings, 100)
	options.Logger = cmp.Or(options.Logger, slog.Default())
	c := worldChecker{world: world, nc: nc, js: js, options: options}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	report := c.report
	if !options.Repair || !slices.ContainsFunc(report.Damaged, c.repairable) {
		return report, nil
	}
	report.Repair = new(RepairReport)
	if report.Repair.TownsRepaired, err = c.repairTowns(ctx); err != nil {
		return report, err
	}
	if err = c.check(ctx); err == nil {
		report.Repair.After = c.report
	}
	return report, err
}

// worldChecker is one check of a world, with its findings.
type worldChecker struct {
	world   string
	nc      *nats.Conn
	js      jetstream.JetStream
	options Options
	report  *Report

	log *records.Log
	// settings are the settings of the world.
	settings   worldsettings.Stored
	clockAhead time.Duration // how far the NATS server's clock is ahead of this machine's
	logCheck   *LogChecker
	// damaged are the towns that no engine can load at this point of the log, by their subject.
	damaged map[string]*DamagedTown
}

func (c *worldChecker) addFindings(findings ...Finding) {
	for _, f := range findings {
		f.Stream = layout.LogStream(c.world)
		c.report.add(f, c.options.MaxFindings)
	}
}

// now is the time by the clock of the NATS server.
func (c *worldChecker) now() time.Time { return time.Now().Add(c.clockAhead) }

func (c *worldChecker) check(ctx context.Context) (err error) {
	if c.log, err = records.OpenReader(ctx, c.js, c.world); err != nil {
		return err
	}
	c.log.MaxPayload, c.log.Now = c.nc.MaxPayload, c.now // for a repair
	info := c.log.Stream.CachedInfo()
	c.clockAhead = time.Until(info.TimeStamp)
	c.report = &Report{World: c.world, LogEnd: info.State.LastSeq, Findings: []Finding{}}
	c.logCheck = NewLogChecker(c.world, func(seq uint64) (*jetstream.RawStreamMsg, error) {
		return c.log.At(ctx, seq)
	})
	c.damaged = map[string]*DamagedTown{}
	if err := c.checkSettings(ctx); err != nil {
		return err
	}
	if err := c.readLog(ctx); err != nil {
		return err
	}
	if err := c.checkHistories(ctx); err != nil {
		return err
	}
	c.report.Counts = c.logCheck.Counts
	if err := c.compareIndex(ctx); err != nil {
		return err
	}
	return c.compareReplicas(ctx)
}

// errEnd ends the reading of a log.
var errEnd = errors.New("fsck: the end of the check")

func (c *worldChecker) readLog(ctx context.Context) error {
	end := c.report.LogEnd
	err := commitlog.ScanMessages(ctx, c.log.Stream, c.nc.MaxPayload(),
		func(m *jetstream.RawStreamMsg) error {
			if m.Sequence > end {
				return errEnd
			}
			v, err := c.logCheck.check(m)
			if err == nil {
				c.addMessage(v)
				c.progress(m.Sequence)
			}
			return err
		})
	if err != nil && err != errEnd {
		return err
	}
	c.progress(end)
	return nil
}

// progress reports how far the log was read.
func (c *worldChecker) progress(seq uint64) {
	if c.options.Progress != nil {
		c.options.Progress(seq, c.report.LogEnd)
	}
}

// checkSettings reports lost settings of the world, a configuration of the log's stream that does not
// follow them, and a limit that deletes records.
func (c *worldChecker) checkSettings(ctx context.Context) (err error) {
	info := c.log.Stream.CachedInfo()
	if err := commitlog.CheckLimits(info.Config); err != nil {
		c.addFindings(Finding{Subject: layout.SettingsSubject(c.world),
			What: "NATS deletes records at a limit of the stream: nats stream edit removes it", Want: "no limit",
			Got: phrase.Sentence(err)})
	}
	c.settings, err = worldsettings.Read(ctx, c.log.Log)
	if errors.Is(err, worldsettings.ErrSettingsLost) {
		c.addFindings(Finding{Subject: layout.SettingsSubject(c.world), Sequence: c.settings.Sequence,
			What: "the settings of the world cannot be read", Want: "settings", Got: err.Error()})
		c.settings = worldsettings.ReadStreamConfig(info.Config)
		return nil
	}
	if err != nil {
		return err
	}
	follows := info.Config
	c.settings.Configure(&follows)
	what := "the configuration of the stream does not follow the settings of the world: " +
		"start a server of the world again"
	want, got := settingsText(follows), settingsText(info.Config)
	if want != got {
		c.addFindings(Finding{Subject: layout.SettingsSubject(c.world), Sequence: c.settings.Sequence,
			What: what, Want: want, Got: got})
	}
	return nil
}

// settingsText returns the part of a stream's configuration that follows the settings of its world.
func settingsText(config jetstream.StreamConfig) string {
	return fmt.Sprint(worldsettings.ReadStreamConfig(config).List(), ", ", config.MaxMsgsPerSubject,
		" messages of a subject, compression ", config.Compression)
}

// compareIndex finds the differences between the index in use and the log.
func (c *worldChecker) compareIndex(ctx context.Context) error {
	if c.options.Index == "" {
		return nil
	}
	found, err := index.Compare(ctx, index.LogSource(c.log.Log), c.options.Index, c.world,
		c.report.LogEnd)
	for _, d := range found {
		c.addFindings(Finding{Kind: IndexDiffers, Sequence: d.Seq, Town: d.Town, What: d.What,
			Want: d.Want, Got: d.Got})
	}
	return err
}
