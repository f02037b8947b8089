package fsck

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// maxLostShown bounds a town's lost messages in a report and a record of kind mend.
const maxLostShown = 16

// DamagedTown is a town that answers TOWN_DAMAGED, because its last message is not a record of
// it.
type DamagedTown struct {
	Town    string `json:"town,omitzero"` // "" where the town is not known
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
func loadable(m jetstream.Msg) bool {
	rec, err := commitlog.ReadRecord(m.Data())
	if err != nil {
		return false
	}
	_, err = rec.State(m.Headers().Get(wire.HashHeader))
	return err == nil
}

// mendOf returns the restoration that a record of kind mend holds, or nil for any other message.
func mendOf(m jetstream.Msg) *commitlog.Mended {
	if commitlog.Kind(m.Headers().Get(wire.KindHeader)) != commitlog.KindMend {
		return nil
	}
	rec, err := commitlog.ReadRecord(m.Data())
	if err != nil {
		return nil
	}
	return rec.Mend
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
	known := setAside{before: c.end + 1}
	for next := seq + 1; ; {
		m, err := commitlog.NextStored(ctx, c.log, subject, next)
		if err != nil {
			return false, err
		}
		if m == nil {
			break
		}
		if loadable(m) {
			mend := mendOf(m)
			known = setAside{before: m.Seq, mended: mend != nil && mend.Restores < seq}
			break
		}
		next = m.Seq + 1
	}
	c.aside[subject] = known
	return known.mended, nil
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
				Town: townOfToken(lastToken(subject)), Subject: subject,
				last: t.last, delivered: true,
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
	for next := d.Restores + 1; ; {
		m, err := commitlog.NextStored(ctx, c.log, d.Subject, next)
		if err != nil {
			return false, err
		}
		if m == nil {
			break
		}
		if loadable(m) {
			return true, nil
		}
		d.last, next = max(d.last, m.Seq), m.Seq+1
		d.lose(lostMessage(m))
		d.LosesCommit = d.LosesCommit || mayBeCommit(m)
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
func mayBeCommit(m *commitlog.Message) bool {
	if len(m.Headers()) > 0 {
		return m.Headers().Get(jetstream.ExpectedLastSubjSeqHeader) != ""
	}
	_, err := commitlog.ReadRecord(m.Data())
	return err == nil
}

func (d *DamagedTown) lose(lost commitlog.LostMessage) {
	if len(d.Lost) < maxLostShown {
		d.Lost = append(d.Lost, lost)
	}
}

func lostMessage(m *commitlog.Message) commitlog.LostMessage {
	reason := "its state is not the one that its header names"
	if _, err := commitlog.ReadRecord(m.Data()); err != nil {
		reason = err.Error()
	}
	return commitlog.LostMessage{
		Sequence: m.Seq, Delivered: true, Reason: shortened(reason),
		RunID: shortened(m.Headers().Get(wire.RunIDHeader)),
		Day:   shortened(m.Headers().Get(wire.EpochHeader)),
	}
}

// advise sets the advice about a damaged town.
func (c *worldCheck) advise(ctx context.Context, d *DamagedTown) error {
	rec, state, err := c.restorable(ctx, d)
	if err != nil {
		return err
	}
	if rec == nil {
		d.Restores = 0
		d.Advice = "the log keeps no readable record to put the town back from: restore a backup " +
			"of the world (handoffd restore)"
		return nil
	}
	d.Town, d.Day, d.SnapshotHash = rec.TownID, state.Epoch(), state.Hash
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

// restorable returns the record from which a damaged town is put back, or nil if none is kept.
func (c *worldCheck) restorable(
	ctx context.Context, d *DamagedTown,
) (*commitlog.Record, town.State, error) {
	if d.Restores == 0 {
		return nil, town.State{}, nil
	}
	m, err := commitlog.Stored(ctx, c.log, d.Restores)
	if m == nil || err != nil {
		return nil, town.State{}, err
	}
	rec, err := commitlog.ReadRecord(m.Data())
	if err != nil {
		return nil, town.State{}, nil
	}
	state, err := rec.State(m.Headers().Get(wire.HashHeader))
	if err != nil {
		return nil, town.State{}, nil
	}
	return rec, state, nil
}
