package worldengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
)

// FsckOptions say how a world is checked. The zero value of every member means its documented
// default.
type FsckOptions struct {
	// Repair makes what is derived again from the log where it is not what the log says. What is
	// wrong in the log itself stays: nothing else knows better.
	Repair bool
	// Patience is how long a derived stream may stand still before the end of the log; 10 s.
	Patience time.Duration
	// MaxFindings is how many findings a report holds; 100. All are counted.
	MaxFindings int
	// Logger is where the followers of a repair tell trouble; slog.Default.
	Logger *slog.Logger
}

func (o FsckOptions) withDefaults() FsckOptions {
	o.Patience = orDefault(o.Patience, 10*time.Second)
	o.MaxFindings = orDefault(o.MaxFindings, 100)
	o.Logger = orDefault(o.Logger, slog.Default())
	return o
}

// ErrNoWorld says that NATS has no commit log of the world. Check the world's name.
var ErrNoWorld = errors.New("worldengine: there is no such world")

// Fsck reads everything that a world has in NATS and proves it: the log message by message, with
// every hash and key computed anew, and the derived streams against the log. It changes nothing but
// with Repair, and may be used while servers are running: it goes to where the log's end is when it
// begins, and waits for the derived streams to come there.
//
// The error, ErrNoWorld or ErrLogUnavailable, means that the check or the repair could not be
// finished; whatever is wrong with the world is in the report. All streams are read once, side by side. The
// memory that it takes grows with the number of towns (some 300 bytes each, and at the end their subjects), of
// handoffs that are being applied, of runs that have not ended, of receipts that are wrong (8 bytes each), and
// of commits that fell to damage, not with the length of the log; beside that it has up to 8 MiB of each stream
// in hand, or two of the largest messages.
//
// A key that was accepted twice is found by its receipt, so within the retention of the receipts, and a
// commit that the log has lost, or cannot deliver, by its run events, so within theirs.
func Fsck(ctx context.Context, nc *nats.Conn, world string, options FsckOptions) (*FsckReport, error) {
	if err := ValidateWorld(world); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	options = options.withDefaults()
	next := func() (*fsck, error) {
		f := &fsck{world: world, nc: nc, js: js, options: options}
		return f, f.check(ctx)
	}
	f, err := next()
	if err != nil {
		return nil, err
	}
	report := f.report
	for round := 0; options.Repair && round < repairRounds && f.repairable(); round++ {
		if report.Repair == nil {
			report.Repair = &FsckRepair{}
		}
		if err := f.repair(ctx, report.Repair); err != nil {
			return report, err
		}
		if f, err = next(); err != nil {
			return report, err
		}
		report.Repair.After = f.report
	}
	return report, nil
}

// fsck is one check of a world.
type fsck struct {
	world   string
	nc      *nats.Conn
	js      jetstream.JetStream
	options FsckOptions
	report  *FsckReport

	log      jetstream.Stream
	end      uint64              // the log's last sequence when the check began
	logNow   uint64              // the same, as it was seen last
	ahead    time.Duration       // of the NATS server's clock
	letters  jetstream.Stream    // of dead letters; nil where there is none
	towns    map[string]fsckTown // as far as the log was read: see fsckLog
	present  map[string]bool     // towns that are known to be in the log, by the subject of their history
	receipts fsckReceipts
	events   fsckEvents
	// absentCommits are the commits that fell to damage, by their log sequence.
	absentCommits map[uint64]fsckAbsent
}

// find takes a finding into the report.
func (f *fsck) find(finding FsckFinding) { f.report.add(finding, f.options.MaxFindings) }

// now is the time by the clock of the NATS server, by which messages expire.
func (f *fsck) now() time.Time { return time.Now().Add(f.ahead) }

// openStream returns a stream, or nil where it does not exist.
func (f *fsck) openStream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := f.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, name, err)
	}
	return stream, nil
}

// check reads the streams side by side and fills the report.
func (f *fsck) check(ctx context.Context) error {
	var err error
	if f.log, err = f.openStream(ctx, LogStream(f.world)); err != nil {
		return err
	}
	if f.log == nil {
		return fmt.Errorf("%w: %s", ErrNoWorld, f.world)
	}
	if f.letters, err = f.openStream(ctx, DeadLetterStream(f.world)); err != nil {
		return err
	}
	info := f.log.CachedInfo()
	f.end, f.logNow = info.State.LastSeq, info.State.LastSeq
	f.ahead = time.Until(info.TimeStamp)
	f.report = &FsckReport{World: f.world, LogEnd: f.end, Findings: []FsckFinding{}}
	counts := &f.report.Counts
	f.receipts = fsckReceipts{blamed: map[uint64]bool{}, fsckDerived: fsckDerived{
		fsck: f, name: dedupe.StreamName(f.world), derive: deriveReceipts(f.world),
		alone: receiptAlone, same: &counts.Receipts,
	}}
	f.events = fsckEvents{fsckDerived: fsckDerived{
		fsck: f, name: EventStream(f.world), derive: deriveEvents(f.world),
		alone: eventAlone, same: &counts.Events,
	}}
	f.receipts.lostLog, f.events.lostLog = f.receipts.logLost, f.events.logLost
	f.present, f.absentCommits = map[string]bool{}, map[uint64]fsckAbsent{}
	cursor, err := openFsckCursor(ctx, f.log, f.nc.MaxPayload())
	if err != nil {
		return err
	}
	defer cursor.close(ctx)
	if err := errors.Join(f.receipts.open(ctx), f.events.open(ctx)); err != nil {
		return err
	}
	defer f.receipts.close(ctx)
	defer f.events.close(ctx)
	return f.compare(ctx, cursor)
}

// compare goes through the log up to its end.
func (f *fsck) compare(ctx context.Context, cursor *fsckCursor) error {
	log := newFsckLog(f.world, &f.report.Counts)
	f.towns = log.towns
	last := uint64(0)
	for {
		m, err := cursor.next(ctx)
		if err != nil {
			return err
		}
		if m == nil || m.seq > f.end {
			break
		}
		if err := f.judge(ctx, log.check(m)); err != nil {
			return err
		}
		if err := f.follow(ctx, m, fsckGap{after: last, before: m.seq}); err != nil {
			return err
		}
		last = m.seq
	}
	if err := f.unreadable(ctx); err != nil {
		return err
	}
	f.receipts.gap = fsckGap{after: last, before: f.end + 1}
	f.events.gap = f.receipts.gap
	if err := f.events.finish(ctx); err != nil { // which knows what the log has lost
		return err
	}
	return f.receipts.finish(ctx)
}

// follow checks what is derived from the next message of the log.
func (f *fsck) follow(ctx context.Context, m *fsckMessage, gap fsckGap) error {
	f.receipts.meets(m, gap)
	f.events.meets(m, gap)
	if err := f.events.check(ctx, m); err != nil { // which knows what the log has lost
		return err
	}
	return f.receipts.check(ctx, m)
}

// judge takes what is wrong with a message of the log into the report.
func (f *fsck) judge(ctx context.Context, v *fsckVerdict) error {
	for _, finding := range v.own {
		f.find(finding)
	}
	if len(v.history) == 0 {
		return nil
	}
	before, err := stored(ctx, f.log, v.before)
	if err != nil || before == nil {
		return err
	}
	for _, finding := range v.history {
		f.find(finding)
	}
	return nil
}
