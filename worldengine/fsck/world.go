package fsck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// worldCheck is one check of a world: its streams, what was found, and what was learnt of the towns
// on the way.
type worldCheck struct {
	world   string
	nc      *nats.Conn
	js      jetstream.JetStream
	options Options
	report  *Report

	log     jetstream.Stream
	end     uint64           // the log's last sequence when the check began
	logNow  uint64           // the log's last sequence when it was last asked for
	ahead   time.Duration    // of the NATS server's clock before this machine's
	letters jetstream.Stream // the dead letters; nil where there are none
	// missing are the subjects of dead letters that count as missing, and back those of
	// Options.Replay whose messages are there.
	missing, back []string

	towns    map[string]townState // by the subject of their history: see LogCheck
	present  map[string]bool      // subjects of histories that are known to come behind the place
	receipts receiptCheck
	events   eventCheck
	// absentCommits are the commits that fell to damage, by their log sequence.
	absentCommits map[uint64]absentCommit
	// remains are texts of messages that were derived from a town's last message, by the log
	// sequence of that, where NATS does not deliver it.
	remains map[uint64]string
	// aside are the damaged messages that a record of kind mend put aside, by their subject.
	aside map[string]setAside
	// onDisk are the log sequences of messages that NATS cannot read from its disk, by their
	// subject.
	onDisk map[string]uint64
	// evicted are the commits that full histories have discarded.
	evicted evictions
}

// find takes a finding into the report.
func (c *worldCheck) find(finding Finding) { c.report.add(finding, c.options.MaxFindings) }

// note takes a note into the report.
func (c *worldCheck) note(text string) {
	if len(c.report.Notes) < c.options.MaxFindings {
		c.report.Notes = append(c.report.Notes, text)
	}
}

// now is the time by the clock of the NATS server, by which messages expire.
func (c *worldCheck) now() time.Time { return time.Now().Add(c.ahead) }

// openStream returns a stream, or nil where it does not exist.
func (c *worldCheck) openStream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := c.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: stream %s: %w", commitlog.ErrLogUnavailable, name, err)
	}
	return stream, nil
}

// open opens the log and the dead letters, and takes note of where the log ends.
func (c *worldCheck) open(ctx context.Context) (err error) {
	if c.log, err = commitlog.OpenLog(ctx, c.js, c.world); err != nil {
		return err
	}
	if c.letters, err = c.openStream(ctx, wire.DeadLetterStream(c.world)); err != nil {
		return err
	}
	info := c.log.CachedInfo()
	c.end, c.logNow = info.State.LastSeq, info.State.LastSeq
	c.ahead = time.Until(info.TimeStamp)
	return nil
}

// prepare makes the empty report and the checks that fill it.
func (c *worldCheck) prepare() {
	c.report = &Report{World: c.world, LogEnd: c.end, Findings: []Finding{}}
	counts := &c.report.Counts
	c.receipts = receiptCheck{derivedCheck: derivedCheck{
		worldCheck: c, rules: &c.receipts, name: wire.ReceiptStream(c.world), noun: "receipt",
		derive: commitlog.DeriveReceipts(c.world), same: &counts.Receipts,
		reported: map[uint64]bool{},
	}}
	c.events = eventCheck{derivedCheck: derivedCheck{
		worldCheck: c, rules: &c.events, name: wire.EventStream(c.world), noun: "event",
		derive: commitlog.DeriveEvents(c.world), same: &counts.Events,
	}}
	c.present, c.absentCommits = map[string]bool{}, map[uint64]absentCommit{}
	c.onDisk, c.remains = map[string]uint64{}, map[uint64]string{}
	c.aside = map[string]setAside{}
}

// check reads the streams side by side and fills the report.
func (c *worldCheck) check(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	c.prepare()
	cursor, err := openCursor(ctx, c.log, c.nc.MaxPayload(), c.options.FetchWait)
	if err != nil {
		return err
	}
	defer cursor.close(ctx)
	if err := errors.Join(c.receipts.open(ctx), c.events.open(ctx)); err != nil {
		return err
	}
	defer c.receipts.close(ctx)
	defer c.events.close(ctx)
	if err := c.evicted.start(ctx, &c.events); err != nil {
		return err
	}
	return c.readLog(ctx, cursor)
}

// readLog checks the log up to its end, and with each message what is derived from it.
func (c *worldCheck) readLog(ctx context.Context, cursor *cursor) error {
	log := NewLogCheck(c.world, &c.report.Counts)
	c.towns = log.towns
	last := uint64(0)
	for {
		m, err := cursor.next(ctx)
		if err != nil {
			return err
		}
		if m == nil || m.Seq > c.end {
			if last < c.end {
				c.progress(c.end)
			}
			for _, left := range log.leftWaiting(c.now().Add(-waitingLimit)) {
				c.find(left)
			}
			return c.finish(ctx, last)
		}
		if err := c.take(ctx, log.Check(m)); err != nil {
			return err
		}
		if err := c.mergeDerived(ctx, m, logGap{after: last, before: m.Seq}); err != nil {
			return err
		}
		last = m.Seq
		c.progress(last)
	}
}

func (c *worldCheck) progress(seq uint64) {
	if c.options.Progress != nil {
		c.options.Progress(seq, c.end)
	}
}

// finish checks what can only be known at the end of the log. last is the last sequence that was
// read.
func (c *worldCheck) finish(ctx context.Context, last uint64) error {
	unreadable, err := c.unreadable(ctx)
	if err != nil {
		return err
	}
	c.receipts.gap = logGap{after: last, before: c.end + 1}
	c.events.gap = c.receipts.gap
	if err := c.events.finish(ctx); err != nil { // first: it finds lost commits
		return err
	}
	if err := c.receipts.finish(ctx); err != nil {
		return err
	}
	if err := c.findBeheaded(ctx); err != nil {
		return err
	}
	c.noteEvicted()
	if err := c.noteOnDisk(ctx); err != nil {
		return err
	}
	return c.findDamagedTowns(ctx, unreadable)
}

// mergeDerived compares what the next message of the log derives with the derived streams.
func (c *worldCheck) mergeDerived(ctx context.Context, m *commitlog.Message, gap logGap) error {
	c.receipts.meets(m, gap)
	c.events.meets(m, gap)
	if err := c.events.merge(ctx, m); err != nil { // first: it finds lost commits
		return err
	}
	if c.towns[m.Subject()].first == m.Seq {
		c.evicted.oldest(m)
	}
	return c.receipts.merge(ctx, m)
}

// take takes the verdict on a message of the log into the report, unless the message is a damaged
// one that was put aside.
func (c *worldCheck) take(ctx context.Context, v *Verdict) error {
	if v.damaged {
		mended, err := c.putAside(ctx, v.message.Subject(), v.message.Seq)
		if err != nil {
			return err
		}
		if mended {
			c.report.Counts.PutAside++
			return nil
		}
	}
	for _, seq := range v.onDisk {
		c.onDisk[v.message.Subject()] = seq
	}
	for _, finding := range v.Own {
		c.find(finding)
	}
	if len(v.History) == 0 {
		return nil
	}
	before, err := commitlog.Stored(ctx, c.log, v.before)
	if err != nil || before == nil {
		return err
	}
	for _, finding := range v.History {
		c.find(finding)
	}
	return nil
}
