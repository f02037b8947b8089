package fsck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// maxLostShown bounds a town's lost messages in a report and a record of kind mend.
const maxLostShown = 16

// DamagedTown is a town that answers TOWN_DAMAGED, because its last message is not a record of
// it.
type DamagedTown struct {
	Town    string `json:"town,omitzero"` // "" if the town is not known
	Subject string `json:"subject"`
	// Restores is the log sequence of the town's last readable record, 0 if none is kept; Day and
	// SnapshotHash are its state's.
	Restores     uint64 `json:"restores"`
	Day          int64  `json:"day"`
	SnapshotHash string `json:"snapshotHash,omitzero"`
	// Lost are the messages behind that record, at most 16.
	Lost []commitlog.LostMessage `json:"lost"`
	// LosesCommit reports that one of them may be a commit that a client got an answer for.
	// Options.MendTowns is necessary to put such a town back.
	LosesCommit bool `json:"losesCommit"`
	// Advice is the command to run, and its effect.
	Advice string `json:"advice"`

	last      uint64 // the sequence of the subject's last message
	delivered bool   // NATS delivers that one
}

// loadable reports whether an engine accepts a record of a town's subject as the town's state.
func loadable(m *jetstream.RawStreamMsg) bool {
	_, err := commitlog.ReadEntry("", m)
	return err == nil
}

// setAside tells which damaged messages of a subject before a sequence were put aside by a record
// of kind mend.
type setAside struct {
	before uint64
	mended bool
}

// putAside reports whether a later record puts the town of a damaged message back.
func (c *worldCheck) putAside(ctx context.Context, subject string, seq uint64) (bool, error) {
	if known := c.aside[subject]; seq < known.before {
		return known.mended, nil
	}
	m, err := c.nextLoadable(ctx, subject, seq+1, func(*jetstream.RawStreamMsg) {})
	if err != nil {
		return false, err
	}
	known := setAside{before: c.end + 1}
	if m != nil {
		known.before = m.Sequence
		rec, err := commitlog.ReadRecord(m.Data)
		known.mended = err == nil && rec.Mend != nil && rec.Mend.Restores < seq
	}
	c.aside[subject] = known
	return known.mended, nil
}

// nextLoadable returns the first record of a town at or behind a sequence that an engine can load,
// or nil. skip gets the messages before it.
func (c *worldCheck) nextLoadable(
	ctx context.Context, subject string, seq uint64, skip func(*jetstream.RawStreamMsg),
) (*jetstream.RawStreamMsg, error) {
	for {
		m, err := c.next(ctx, subject, seq)
		if m == nil || err != nil || loadable(m) {
			return m, err
		}
		skip(m)
		seq = m.Sequence + 1
	}
}

// findDamagedTowns adds the towns that answer TOWN_DAMAGED to the report. unreadable are those
// whose last message NATS does not deliver.
func (c *worldCheck) findDamagedTowns(ctx context.Context, unreadable []Unreadable) error {
	damaged := map[string]*DamagedTown{}
	for _, u := range unreadable {
		if u.Subject != wire.ControlSubject(c.world) {
			damaged[u.Subject] = &DamagedTown{Town: u.Town, Subject: u.Subject, last: u.Sequence}
		}
	}
	for subject, t := range c.towns {
		if t.last != t.good && damaged[subject] == nil {
			damaged[subject] = &DamagedTown{
				Town: townOf(subject), Subject: subject, last: t.last, delivered: true,
			}
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(damaged)) {
		d := damaged[subject]
		if moved, err := c.describe(ctx, d); err != nil {
			return err
		} else if !moved {
			c.report.Damaged = append(c.report.Damaged, *d)
		}
	}
	return nil
}

// describe fills the report's members about a damaged town. It reports whether the town has moved
// on meanwhile.
func (c *worldCheck) describe(ctx context.Context, d *DamagedTown) (moved bool, err error) {
	d.Restores = c.towns[d.Subject].good
	behind, err := c.nextLoadable(ctx, d.Subject, d.Restores+1, func(m *jetstream.RawStreamMsg) {
		d.last = max(d.last, m.Sequence)
		d.lose(lostMessage(m))
		d.LosesCommit = d.LosesCommit || mayBeCommit(m)
	})
	if behind != nil || err != nil {
		return err == nil, err
	}
	if !d.delivered {
		d.LosesCommit = true
		d.lose(commitlog.LostMessage{
			Sequence: d.last,
			Reason:   "it was changed on the disk of NATS, which does not deliver it",
		})
	}
	return false, c.advise(ctx, d)
}

// mayBeCommit reports whether an engine may have committed a message: it has a guard, or a record
// that has lost its headers.
func mayBeCommit(m *jetstream.RawStreamMsg) bool {
	if len(m.Header) > 0 {
		return m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != ""
	}
	_, err := commitlog.ReadRecord(m.Data)
	return err == nil
}

func (d *DamagedTown) lose(lost commitlog.LostMessage) {
	if len(d.Lost) < maxLostShown {
		d.Lost = append(d.Lost, lost)
	}
}

func lostMessage(m *jetstream.RawStreamMsg) commitlog.LostMessage {
	reason := "its state is not the one that its header names"
	if _, err := commitlog.ReadRecord(m.Data); err != nil {
		reason = err.Error()
	}
	return commitlog.LostMessage{
		Sequence: m.Sequence, Delivered: true, Reason: shortened(reason),
		RunID: shortened(m.Header.Get(wire.RunIDHeader)),
		Day:   shortened(m.Header.Get(wire.EpochHeader)),
	}
}

// advise sets the advice about a damaged town.
func (c *worldCheck) advise(ctx context.Context, d *DamagedTown) error {
	rec, after, err := c.restorable(ctx, d)
	if err != nil {
		return err
	}
	if rec == nil {
		d.Restores = 0
		d.Advice = "the log keeps no readable record to put the town back from: restore a backup " +
			"of the world (handoffd restore)"
		return nil
	}
	d.Town, d.Day, d.SnapshotHash = rec.TownID, after.Held().Epoch(), after.Held().Hash
	to := fmt.Sprintf("puts the town back to log sequence %d, day %d, snapshot %s", d.Restores,
		d.Day, d.SnapshotHash)
	if d.LosesCommit {
		d.Advice = "handoffctl fsck --repair --mend-towns " + to +
			". It LOSES the messages behind that, which may be commits that clients were " +
			"answered; a handoff that is sent again is judged and executed again"
		return nil
	}
	d.Advice = "handoffctl fsck --repair " + to +
		". It loses no commit: the messages behind that are not the engine's"
	return nil
}

// restorable returns the record from which a damaged town is put back, and the town behind it; nil
// if none is kept.
func (c *worldCheck) restorable(
	ctx context.Context, d *DamagedTown,
) (rec *commitlog.Record, after machine.Town, err error) {
	if d.Restores == 0 {
		return nil, after, nil
	}
	m, err := c.at(ctx, d.Restores)
	if m == nil || err != nil || !loadable(m) {
		return nil, after, err
	}
	if rec, err = commitlog.ReadRecord(m.Data); err == nil {
		after, err = commitlog.ReadEntry(rec.TownID, m)
	}
	return rec, after, err
}

// mendable reports whether the options allow to put a damaged town back.
func (c *worldCheck) mendable(d DamagedTown) bool {
	return d.Restores > 0 && (c.options.MendTowns || !d.LosesCommit)
}

// mendTowns puts the towns back that the options allow, and returns them.
func (c *worldCheck) mendTowns(ctx context.Context) (all []DamagedTown, err error) {
	for _, d := range c.report.Damaged {
		if !c.mendable(d) {
			continue
		}
		mended, err := c.mendTown(ctx, &d)
		if err != nil {
			return all, err
		}
		if mended {
			all = append(all, d)
		}
	}
	return all, nil
}

// mendTown appends the town's last readable record again. The history stays unchanged: the log
// denies removals. If the town has moved on meanwhile, nothing is written.
func (c *worldCheck) mendTown(ctx context.Context, d *DamagedTown) (bool, error) {
	prior, after, err := c.restorable(ctx, d)
	if prior == nil || err != nil {
		return false, err
	}
	rec := commitlog.Record{Kind: commitlog.KindMend, TownID: prior.TownID,
		Mend: &commitlog.Mended{Restores: d.Restores, Lost: d.Lost}}
	msg, err := commitlog.Encode(&rec, d.Subject, &after)
	if err != nil {
		return false, err
	}
	guard := uint64(0) // to the guard, a message that is not delivered is none
	if d.delivered {
		guard = d.last
	}
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(guard, 10)}
	msg.Header[wire.AtHeader] = []string{runevents.Timestamp(c.now())}
	ack, err := c.js.PublishMsg(ctx, msg)
	if commitlog.IsWrongLastSequence(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: town %q cannot be put back: %w", commitlog.ErrLogUnavailable,
			d.Town, err)
	}
	return true, c.alertMended(ctx, d, ack.Sequence)
}

// alertMended raises the alert that a town was put back.
func (c *worldCheck) alertMended(ctx context.Context, d *DamagedTown, seq uint64) error {
	alert := runevents.NewAlert(runevents.TownMended, &runevents.Record{}, fmt.Sprintf(
		"fsck put the town %q back to log sequence %d (day %d) with the record at %d; "+
			"the messages between them are lost",
		d.Town, d.Restores, d.Day, seq))
	alert.TownID, alert.Since = d.Town, runevents.Timestamp(c.now())
	raised := alerts.New(c.js, alerts.Config{
		World: c.world, Replicas: c.log.CachedInfo().Config.Replicas,
		Logger: c.options.Logger, Now: c.now,
	})
	err := raised.RaiseStored(ctx, alert)
	if err != nil { // it may have made the stream
		err = raised.RaiseStored(ctx, alert)
	}
	if err != nil {
		return fmt.Errorf("%w: the alert about town %q, which was put back: %w",
			commitlog.ErrLogUnavailable, d.Town, err)
	}
	return nil
}
