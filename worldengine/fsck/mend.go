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
	"worldengine/worldengine/wire"
)

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
	prior, state, err := c.restorable(ctx, d)
	if prior == nil || err != nil {
		return false, err
	}
	rec := commitlog.Record{Kind: commitlog.KindMend, TownID: prior.TownID,
		Mend: &commitlog.Mended{Restores: d.Restores, Lost: d.Lost}}
	after := prior.Town(d.Restores, state)
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

// noteOnDisk records the towns with a message that NATS cannot read from its files: it counts more
// of the town than it delivers. When that message leaves a full history, nats-server 2.15.2 fails:
// it stores nothing more, and truncates the file there at its next start.
func (c *worldCheck) noteOnDisk(ctx context.Context) error {
	for _, subject := range slices.Sorted(maps.Keys(c.onDisk)) {
		counted, err := commitlog.SubjectsOf(ctx, c.log, subject)
		if err != nil {
			return err
		}
		if counted[subject] <= c.towns[subject].read {
			continue // a restore has left it behind
		}
		c.note(
			fmt.Sprintf("town %q: log sequence %d stays in the files of NATS, which cannot read "+
				"it. When NATS discards that message, it loses the messages of the log behind "+
				"it. Before the history of the town is full (--history-per-town), move the world "+
				"by handoffctl backup and handoffd restore, which leave that message behind",
				townOfToken(lastToken(subject)), c.onDisk[subject]))
	}
	return nil
}

// checkMend checks a record that puts its town back.
func (l *LogCheck) checkMend(v *Verdict, rec *commitlog.Record, prior, now *townState) {
	l.counts.Mends++
	if rec.Mend == nil {
		v.want("a record that puts its town back does not name the one that it restores",
			"mend", "")
		return
	}
	for _, lost := range rec.Mend.Lost {
		if !lost.Delivered && now.first < lost.Sequence {
			v.onDisk = append(v.onDisk, lost.Sequence)
		}
	}
	if prior.good == 0 {
		return
	}
	v.before = prior.good
	v.follows("the town was put back to another record than its last readable one",
		strconv.FormatUint(prior.good, 10), strconv.FormatUint(rec.Mend.Restores, 10))
	v.follows("the town was put back to another state than that of its last readable record",
		prior.goodHash, now.town.Held().Hash)
}
