package fsck

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/apply"
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
	// keys are the log sequences of the last acceptance of each key, by the first half of the
	// SHA-256 of its town's subject and itself.
	keys map[[16]byte]uint64
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

// at returns the message at a sequence of the log, and next the first one of a subject at or behind
// a sequence; nil if there is none.
func (c *worldCheck) at(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := commitlog.Get(ctx, c.log, seq)
	return msg, c.unavailable(err)
}

func (c *worldCheck) next(
	ctx context.Context, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := commitlog.Next(ctx, c.log, subject, seq)
	return msg, c.unavailable(err)
}

func (c *worldCheck) unavailable(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: stream %s: %w", commitlog.ErrLogUnavailable,
			wire.LogStream(c.world), err)
	}
	return err
}

// check reads the log and fills the report.
func (c *worldCheck) check(ctx context.Context) (err error) {
	if c.log, err = commitlog.OpenLog(ctx, c.js, c.world); err != nil {
		return err
	}
	info := c.log.CachedInfo()
	c.end, c.ahead = info.State.LastSeq, time.Until(info.TimeStamp)
	c.report = &Report{World: c.world, LogEnd: c.end, Findings: []Finding{}}
	c.keys, c.aside = map[[16]byte]uint64{}, map[string]setAside{}
	c.onDisk, c.cut = map[string]uint64{}, map[string]uint64{}
	if err := c.readLog(ctx); err != nil {
		return err
	}
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

// errEnd ends the reading of a log.
var errEnd = errors.New("fsck: the end of the check")

// readLog checks the log up to its end.
func (c *worldCheck) readLog(ctx context.Context) error {
	log := NewLogCheck(c.world, &c.report.Counts)
	c.towns = log.towns
	err := commitlog.EachWhole(ctx, c.log, c.nc.MaxPayload(), c.options.FetchWait,
		func(m *jetstream.RawStreamMsg) error {
			if m.Sequence > c.end {
				return errEnd
			}
			if err := c.take(ctx, log.Check(m)); err != nil {
				return err
			}
			// The town's oldest message may follow another one, which is gone.
			if guard, _ := guardOf(m.Header); guard > 0 && c.towns[m.Subject].first == m.Sequence {
				c.cut[m.Subject] = m.Sequence
			}
			c.progress(m.Sequence)
			return nil
		})
	if err != nil && err != errEnd {
		return err
	}
	c.progress(c.end)
	for _, left := range log.leftWaiting(c.now().Add(-waitingLimit)) {
		c.find(left)
	}
	return nil
}

func (c *worldCheck) progress(seq uint64) {
	if c.options.Progress != nil {
		c.options.Progress(seq, c.end)
	}
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
		mended, err := c.putAside(ctx, v.message.Subject, v.message.Sequence)
		if err != nil {
			return err
		}
		if mended {
			c.report.Counts.PutAside++
			return nil
		}
	}
	for _, seq := range v.onDisk {
		c.onDisk[v.message.Subject] = seq
	}
	for _, finding := range v.Own {
		c.find(finding)
	}
	if err := c.checkKey(ctx, v); err != nil || len(v.History) == 0 {
		return err
	}
	before, err := c.at(ctx, v.before)
	if err != nil || before == nil {
		return err
	}
	guard, _ := guardOf(v.message.Header)
	if guard > before.Sequence && before.Subject == v.message.Subject {
		c.onDisk[before.Subject] = guard // noteOnDisk finds out whether NATS counts it
	}
	for _, finding := range v.History {
		c.find(finding)
	}
	return nil
}

// checkKey reports a key that its town accepted before, unless the log no longer keeps that, or the
// record is of a retry.
func (c *worldCheck) checkKey(ctx context.Context, v *Verdict) error {
	if v.accepts == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(v.message.Subject + " " + v.accepts.key))
	key := [16]byte(sum[:])
	before := c.keys[key]
	c.keys[key] = v.message.Sequence
	if before == 0 {
		return nil
	}
	first, err := c.at(ctx, before)
	if first != nil && err == nil && !v.accepts.retries(first) {
		c.find(v.finding("the key was accepted twice", fmt.Sprint("a duplicate of log sequence ",
			before), "accepted again: "+v.accepts.key))
	}
	return err
}

// retries reports whether an acceptance is of a run that retries an earlier record's run, which
// failed because no plugin or console was reachable.
func (a *acceptance) retries(earlier *jetstream.RawStreamMsg) bool {
	if a.retryOf == nil || a.retryOf.LogSeq != earlier.Sequence {
		return false
	}
	rec, err := commitlog.ReadRecord(earlier.Data)
	if err != nil || rec.Run == nil || rec.Run.RunID != a.retryOf.RunID {
		return false
	}
	result, err := resultOf(rec)
	return err == nil && result.ReasonCode == apply.ReasonPluginUnavailable
}
