package fsck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// maxLostShown bounds a town's lost messages in a report and a record of kind mend.
const maxLostShown = 16

// DamagedTown is a town that answers TOWN_DAMAGED, because its last message is not a record of the
// town.
type DamagedTown struct {
	Town    string `json:"town,omitzero"` // "" if the town is not known
	Subject string `json:"subject"`
	// Restores is the log sequence of the town's last readable record, 0 if none is kept; Day and
	// SnapshotHash are of the state in that record.
	Restores     uint64 `json:"restores"`
	Day          int64  `json:"day"`
	SnapshotHash string `json:"snapshotHash,omitzero"`
	// Lost are the messages behind that record, at most 16.
	Lost []commitlog.LostMessage `json:"lost"`
	// LosesCommit reports that a lost message may be a commit for which a client got an answer.
	// Only Options.MendTowns puts such a town back.
	LosesCommit bool `json:"losesCommit"`
	// Advice is the command to run, and its effect.
	Advice string `json:"advice"`

	last commitlog.LostMessage
	// held are the verdicts about the lost messages that NATS delivers, and good is the town after
	// the last readable record.
	held []*Verdict
	good *machine.Town
}

// damage returns the damaged town of a subject.
func (c *worldCheck) damage(subject string) *DamagedTown {
	d := c.damaged[subject]
	if d == nil {
		d = &DamagedTown{Town: townOf(subject), Subject: subject}
		c.damaged[subject] = d
	}
	return d
}

func (d *DamagedTown) lose(lost commitlog.LostMessage, mayBeCommit bool) {
	d.last, d.LosesCommit = lost, d.LosesCommit || mayBeCommit
	if len(d.Lost) < maxLostShown {
		d.Lost = append(d.Lost, lost)
	}
}

// hold keeps a verdict about a message that no engine can load.
func (c *worldCheck) hold(v *Verdict) {
	reason := "its state is not the one that its header names"
	if _, err := commitlog.ReadRecord(v.Data); err != nil {
		reason = err.Error()
	}
	// A message with a guard, or a record that lost its headers, may be an engine's commit.
	mayBeCommit := v.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != ""
	if len(v.Header) == 0 {
		mayBeCommit = v.rec != nil
	}
	d := c.damage(v.Subject)
	d.lose(commitlog.LostMessage{
		Sequence: v.Sequence, Delivered: true, Reason: shortened(reason),
		RunID: shortened(v.Header.Get(wire.RunIDHeader)),
		Day:   shortened(v.Header.Get(wire.EpochHeader)),
	}, mayBeCommit)
	v.Data, v.body = nil, nil // the texts may be large
	d.held = append(d.held, v)
}

// resolve counts the held messages that rec, the town's next record, puts aside, and reports the
// others. rec is nil if no record follows.
func (c *worldCheck) resolve(
	ctx context.Context, d *DamagedTown, rec *commitlog.Record,
) error {
	for _, v := range d.held {
		if rec != nil && rec.Mend != nil && rec.Mend.Restores < v.Sequence {
			c.report.Counts.PutAside++
		} else if err := c.add(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// reportDamaged reports the towns that no record puts back, with their held messages and remedies.
func (c *worldCheck) reportDamaged(ctx context.Context) error {
	for _, subject := range slices.Sorted(maps.Keys(c.damaged)) {
		d := c.damaged[subject]
		if err := c.resolve(ctx, d, nil); err != nil {
			return err
		}
		if h := c.seen.histories[subject]; h != nil && h.good != nil {
			now := h.good.Held()
			d.good, d.Restores = h.good, h.good.Seq
			d.Town, d.Day, d.SnapshotHash = now.Snapshot.TownID, now.Epoch(), now.Hash
		}
		d.Advice = d.advice()
		c.report.Damaged = append(c.report.Damaged, *d)
	}
	return nil
}

func (d *DamagedTown) advice() string {
	to := fmt.Sprintf("puts the town back to log sequence %d, day %d, snapshot %s", d.Restores,
		d.Day, d.SnapshotHash)
	switch {
	case d.good == nil:
		return "the log keeps no readable record to put the town back from: restore a backup " +
			"of the world (handoffd restore)"
	case d.LosesCommit:
		return "handoffctl fsck --repair --mend-towns " + to +
			". It LOSES the messages behind that, which may be commits that clients were " +
			"answered; a handoff that is sent again is judged and executed again"
	}
	return "handoffctl fsck --repair " + to +
		". It loses no commit: the messages behind that are not the engine's"
}

// mendable reports whether the options allow the repair of a damaged town.
func (c *worldCheck) mendable(d DamagedTown) bool {
	return d.good != nil && (c.options.MendTowns || !d.LosesCommit)
}

// mendTowns puts back the towns that the options allow, and returns them.
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
	rec := commitlog.Record{Kind: commitlog.KindMend, TownID: d.Town,
		Mend: &commitlog.Mended{Restores: d.Restores, Lost: d.Lost}}
	msg, err := commitlog.Encode(&rec, d.Subject, d.good)
	if err != nil {
		return false, err
	}
	guard := uint64(0) // for guards, NATS ignores messages that it cannot deliver
	if d.last.Delivered {
		guard = d.last.Sequence
	}
	seq, err := c.log.Commit(ctx, msg, guard)
	if errors.Is(err, commitlog.ErrLostRace) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: town %q cannot be put back: %w", commitlog.ErrLogUnavailable,
			d.Town, err)
	}
	return true, c.alertMended(ctx, d, seq)
}

func (c *worldCheck) alertMended(ctx context.Context, d *DamagedTown, seq uint64) error {
	alert := runevents.NewAlert(runevents.TownMended, &runevents.Record{}, fmt.Sprintf(
		"fsck put the town %q back to log sequence %d (day %d) with the record at %d; "+
			"the messages between them are lost",
		d.Town, d.Restores, d.Day, seq))
	alert.TownID, alert.Since = d.Town, runevents.Timestamp(c.now())
	raised := alerts.New(c.js, alerts.Config{
		World: c.world, Replicas: c.log.Stream.CachedInfo().Config.Replicas,
		Logger: c.options.Logger, Now: c.now,
	})
	err := raised.RaiseStored(ctx, alert)
	if err != nil { // the first try may have made the stream
		err = raised.RaiseStored(ctx, alert)
	}
	if err != nil {
		return fmt.Errorf("%w: the alert about town %q, which was put back: %w",
			commitlog.ErrLogUnavailable, d.Town, err)
	}
	return nil
}
