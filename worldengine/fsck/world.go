package fsck

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

// worldCheck is one check of a world: its log, the findings, and all knowledge of the towns.
type worldCheck struct {
	world   string
	nc      *nats.Conn
	js      jetstream.JetStream
	options Options
	report  *Report

	log   jetstream.Stream
	end   uint64        // the log's last sequence when the check began
	ahead time.Duration // of the NATS server's clock before this machine's

	towns map[string]townState // by the subject of their history: see LogCheck
	keys  acceptedKeys
	// aside are the damaged messages that a record of kind mend put aside, by their subject.
	aside map[string]setAside
	// onDisk are the log sequences of messages that NATS cannot read from its disk, by their
	// subject.
	onDisk map[string]uint64
	// cut are the oldest kept messages that follow another one, by the subject of their town.
	cut map[string]uint64
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

// check reads the log and fills the report.
func (c *worldCheck) check(ctx context.Context) (err error) {
	if c.log, err = commitlog.OpenLog(ctx, c.js, c.world); err != nil {
		return err
	}
	info := c.log.CachedInfo()
	c.end, c.ahead = info.State.LastSeq, time.Until(info.TimeStamp)
	c.report = &Report{World: c.world, LogEnd: c.end, Findings: []Finding{}}
	c.keys, c.aside = acceptedKeys{}, map[string]setAside{}
	c.onDisk, c.cut = map[string]uint64{}, map[string]uint64{}
	cursor, err := openCursor(ctx, c.log, c.nc.MaxPayload(), c.options.FetchWait)
	if err != nil {
		return err
	}
	defer cursor.close(ctx)
	return c.readLog(ctx, cursor)
}

// readLog checks the log up to its end.
func (c *worldCheck) readLog(ctx context.Context, cursor *cursor) error {
	log := NewLogCheck(c.world, &c.report.Counts)
	c.towns = log.towns
	for {
		m, err := cursor.next(ctx)
		if err != nil {
			return err
		}
		if m == nil || m.Seq > c.end {
			break
		}
		if err := c.take(ctx, log.Check(m)); err != nil {
			return err
		}
		if c.towns[m.Subject()].first == m.Seq {
			c.noteCut(m)
		}
		c.progress(m.Seq)
	}
	c.progress(c.end)
	for _, left := range log.leftWaiting(c.now().Add(-waitingLimit)) {
		c.find(left)
	}
	return c.finish(ctx)
}

func (c *worldCheck) progress(seq uint64) {
	if c.options.Progress != nil {
		c.options.Progress(seq, c.end)
	}
}

// finish checks the rules that need the whole log.
func (c *worldCheck) finish(ctx context.Context) error {
	unreadable, err := c.unreadable(ctx)
	if err != nil {
		return err
	}
	if err := c.findBeheaded(ctx); err != nil {
		return err
	}
	if err := c.noteOnDisk(ctx); err != nil {
		return err
	}
	if err := c.findDamagedTowns(ctx, unreadable); err != nil {
		return err
	}
	return c.compareIndex(ctx)
}

// compareIndex finds the differences between the index in use and the log.
func (c *worldCheck) compareIndex(ctx context.Context) error {
	if c.options.Index == "" {
		return nil
	}
	log := &commitlog.Log{World: c.world, Stream: c.log,
		Store: commitlog.NewStore(c.js, c.log, false)}
	return index.Compare(ctx, index.LogSource(log), c.options.Index, c.world, c.end,
		func(d index.Difference) {
			c.find(Finding{Kind: IndexDiffers, Stream: wire.LogStream(c.world), Sequence: d.Seq,
				Town: d.Town, What: d.What, Want: d.Want, Got: d.Got})
		})
}

// take adds a verdict to the report, unless the message is a damaged one that was put aside.
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
	if err := c.checkKey(ctx, v); err != nil || len(v.History) == 0 {
		return err
	}
	before, err := commitlog.Stored(ctx, c.log, v.before)
	if err != nil || before == nil {
		return err
	}
	if guard := guardOf(v.message); guard > before.Seq && before.Subject() == v.message.Subject() {
		c.onDisk[before.Subject()] = guard // noteOnDisk tells whether NATS counts it
	}
	for _, finding := range v.History {
		c.find(finding)
	}
	return nil
}
