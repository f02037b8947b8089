package fsck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/sidestream"
)

// maxLostShown bounds a town's lost messages in a report and a repair.
const maxLostShown = 16

// DamagedTown is a town that answers TOWN_DAMAGED: its last message is not a record of the town, or
// the log lacks a record before it.
type DamagedTown struct {
	Town    string `json:"town,omitzero"` // "" if the town is not known
	Subject string `json:"subject"`
	// Restores is the log sequence of the town's last readable record, 0 if none is kept; Day and
	// SnapshotHash are of the state in that record.
	Restores     uint64 `json:"restores"`
	Day          int64  `json:"day"`
	SnapshotHash string `json:"snapshotHash,omitzero"`
	// Lost are the messages behind that record, or the missing ones before it; at most 16.
	Lost []machine.LostMessage `json:"lost"`
	// LosesCommit reports that a lost message may be a commit for which a client got an answer.
	// Only Options.RepairTowns puts such a town back.
	LosesCommit bool `json:"losesCommit"`
	// Advice is the command to run, and its effect.
	Advice string `json:"advice"`

	guard       uint64 // of the town's next message
	stateIntact bool   // its state is good; records before it are missing
	gaps        []machine.Gap
	delivered   int64         // the number of lost messages that NATS delivers
	findings    []Finding     // about these messages
	lastGood    *machine.Town // after the last readable record; nil if there is none
}

// damage returns the damaged town of a subject.
func (c *worldChecker) damage(subject string) *DamagedTown {
	d := c.damaged[subject]
	if d == nil {
		d = &DamagedTown{Town: townOf(subject), Subject: subject}
		c.damaged[subject] = d
	}
	return d
}

func (d *DamagedTown) addLost(lost machine.LostMessage, mayBeCommit bool) {
	d.guard, d.LosesCommit = 0, d.LosesCommit || mayBeCommit
	if lost.Delivered { // guards do not count messages that NATS does not deliver
		d.guard = lost.Sequence
	}
	if len(d.Lost) < maxLostShown {
		d.Lost = append(d.Lost, lost)
	}
}

// addMessage adds the findings about a message to the report. If no engine can load the message, they
// wait: a later record may put the message aside.
func (c *worldChecker) addMessage(v *message) {
	if v.damaged() {
		c.damage(v.Subject).add(v)
		return
	}
	if d := c.damaged[v.Subject]; d != nil {
		delete(c.damaged, v.Subject)
		if v.rec.Kind == machine.KindRepair {
			c.logCheck.Counts.PutAside += d.delivered
		} else {
			c.addFindings(d.findings...)
		}
	}
	c.addFindings(v.findings...)
}

// add adds a message that no engine can load.
func (d *DamagedTown) add(v *message) {
	reason := "its state is not the one that its header names"
	if _, err := records.Read(v.Data); err != nil {
		reason = err.Error()
	}
	// A message with a guard, or a record that lost its headers, may be an engine's commit.
	mayBeCommit := v.Header.Get(jetstream.ExpectedLastSubjSeqHeader) != "" ||
		len(v.Header) == 0 && v.rec != nil
	d.addLost(machine.LostMessage{
		Sequence: v.Sequence, Delivered: true, Reason: truncated(reason),
		RunID: truncated(layout.RunIDOf(v.Header)),
		Day:   truncated(v.Header.Get(layout.EpochHeader)),
	}, mayBeCommit)
	d.delivered++
	d.findings = append(d.findings, v.findings...)
}

// Unreadable is a history, of a town or of the world's pauses or settings, whose last message NATS counts but
// does not deliver: the message was changed on the disk. The loss of an earlier message shows in
// the guard of the next one.
type Unreadable struct {
	Town     string `json:"town,omitzero"` // "" for the world, or if the id is too long
	Subject  string `json:"subject"`
	Sequence uint64 `json:"sequence"` // of the last message
}

// FindUnreadable returns the unreadable histories of a log, by their subjects, and how many
// messages NATS counts of each history. read returns how many messages of a subject were read;
// FindUnreadable looks at a subject only if NATS counts another number. The error is
// ErrLogUnavailable.
func FindUnreadable(
	ctx context.Context, log *commitlog.Log, read func(subject string) uint64,
) (all []Unreadable, counted map[string]uint64, err error) {
	counted, err = commitlog.SubjectsOf(ctx, log.Stream, layout.LogSubject(log.World, "*"),
		layout.PauseSubject(log.World), layout.SettingsSubject(log.World))
	if err != nil {
		return nil, nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(counted)) {
		if read(subject) == counted[subject] {
			continue
		}
		_, err := log.Store.Last(ctx, subject)
		if err == nil {
			continue
		}
		found := Unreadable{Town: townOf(subject), Subject: subject}
		if errors.Is(err, commitlog.ErrUnreadable) {
			found.Sequence, err = commitlog.LastSequence(ctx, log.Stream, subject)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: last message of %s: %w", commitlog.ErrLogUnavailable,
				subject, err)
		}
		all = append(all, found)
	}
	return all, counted, nil
}

// checkHistories reports the histories that are unreadable or have lost their beginning, and the
// damaged towns.
func (c *worldChecker) checkHistories(ctx context.Context) error {
	unreadable, counted, err := FindUnreadable(ctx, c.log.Log, func(subject string) uint64 {
		if h := c.logCheck.histories[subject]; h != nil {
			return h.read
		}
		return 0
	})
	if err != nil {
		return err
	}
	for _, u := range unreadable {
		const what = "changed on the disk of NATS, which does not deliver it"
		c.addFindings(Finding{Sequence: u.Sequence, Subject: u.Subject, Town: u.Town,
			What: "the last message was " + what})
		if layout.LoggedTown(u.Subject) != "" {
			c.damage(u.Subject).addLost(machine.LostMessage{Sequence: u.Sequence,
				Reason: "it was " + what}, true)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(c.logCheck.histories)) {
		c.checkHistory(subject, c.logCheck.histories[subject], counted[subject])
		if err := c.checkHoles(ctx, subject, c.logCheck.histories[subject]); err != nil {
			return err
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(c.damaged)) {
		d := c.damaged[subject]
		c.addFindings(d.findings...)
		h := c.logCheck.histories[subject]
		if h != nil && h.lastGood != nil {
			now := h.lastGood.LastState()
			d.lastGood, d.Restores = h.lastGood, h.lastGood.Seq
			d.Town, d.Day, d.SnapshotHash = now.Snapshot.TownID, now.Epoch(), now.Hash
		}
		// NATS counts a commit before a stray message, and does not deliver it.
		d.LosesCommit = d.LosesCommit || h != nil && counted[subject] > h.read
		d.Advice = d.advice()
		c.report.Damaged = append(c.report.Damaged, *d)
	}
	return nil
}

// checkHistory reports a town that has lost the beginning of its history: the first message names
// an earlier one, but no limit has discarded messages, since the history is shorter than any full
// one. Histories that begin within a restored backup do not count. n is how many messages NATS
// counts.
//
// It also notes a town with a message that NATS cannot read from its files: NATS counts more
// messages of the town than it delivers. When that message leaves a full history, nats-server
// 2.15.2 fails: it stores nothing more, and truncates the file there at its next start.
func (c *worldChecker) checkHistory(subject string, h *history, n uint64) {
	least := uint64(c.settings.MinHistory)
	if h.isTown && h.truncated && max(h.read, n) < least && h.first > c.settings.RestoredTo {
		c.addFindings(Finding{
			Sequence: h.first, Subject: subject, Town: townOf(subject),
			What: "the log has lost the beginning of the town's history",
			Want: "a message before it",
			Got:  fmt.Sprintf("none, and %d of the %d that the history keeps", n, least),
		})
	}
	// A restored log does not have the message.
	noted := h.unreadableSeq > 0 && n > h.read
	if noted && len(c.report.Notes) < c.options.MaxFindings {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("town %q: log sequence %d stays in "+
			"the files of NATS, which cannot read it. When NATS discards that message, it loses "+
			"the messages of the log behind it. Before the history of the town is full "+
			"(--history-per-town), move the world by handoffctl backup and handoffd restore, "+
			"which leave that message behind", townOf(subject), h.unreadableSeq))
	}
}

// checkHoles notes a town with a hole in its history as damaged: it accepts no handoffs. The engine has
// the same rule. A town that is damaged anyway is looked at again after its repair.
func (c *worldChecker) checkHoles(ctx context.Context, subject string, h *history) error {
	if len(h.holes) == 0 || c.damaged[subject] != nil {
		return nil
	}
	first, err := c.log.Next(ctx, subject, 1)
	if err != nil {
		return err
	}
	newest := h.holes[len(h.holes)-1]
	full := h.read-newest.read >= uint64(c.settings.MinHistory)
	restored := newest.before == 0 && newest.at <= c.settings.RestoredTo
	// While the world is served, the log may have discarded the missing records after the check began.
	discarded := newest.before > 0 && first != nil && first.Sequence > newest.before
	if full || restored || discarded {
		return nil
	}
	d := c.damage(subject)
	d.LosesCommit, d.guard, d.stateIntact = true, h.last, true
	for _, at := range h.holes[:min(len(h.holes), maxLostShown)] {
		d.Lost = append(d.Lost, machine.LostMessage{Sequence: at.guard, Reason: fmt.Sprintf(
			"the log does not deliver it, and sequence %d names it as the one before", at.at)})
		d.gaps = append(d.gaps, machine.Gap{After: at.before, Before: at.at})
	}
	return nil
}

// townOf returns the town of a history's subject, or "" if its token is a hash.
func townOf(subject string) string {
	token := layout.LoggedTown(subject)
	id, err := percent.Decode(token)
	if err != nil || strings.HasPrefix(token, "=") {
		return ""
	}
	return id
}

func (d *DamagedTown) advice() string {
	to := fmt.Sprintf("puts the town back to log sequence %d, day %d, snapshot %s", d.Restores,
		d.Day, d.SnapshotHash)
	switch {
	case d.lastGood == nil:
		return "the log keeps no readable record to put the town back from: restore a backup " +
			"of the world (handoffd restore)"
	case d.stateIntact:
		return "handoffctl fsck --repair --mend-towns gives up the missing records, and the town goes on " +
			"from its present state. A handoff that one of them accepted is judged again if it is sent " +
			"again. On a cluster, look first for a node that has them: handoffctl fsck --replicas"
	case d.LosesCommit:
		return "handoffctl fsck --repair --mend-towns " + to +
			". It LOSES the messages behind that, which may be commits that clients were " +
			"answered; a handoff that is sent again is judged and executed again"
	}
	return "handoffctl fsck --repair " + to +
		". It loses no commit: the messages behind that are not the engine's"
}

// repairable reports whether the options allow the repair of a damaged town.
func (c *worldChecker) repairable(d DamagedTown) bool {
	return d.lastGood != nil && (c.options.RepairTowns || !d.LosesCommit)
}

// repairTowns puts back the towns that the options allow, and returns them. Earlier messages stay:
// the log denies removals.
func (c *worldChecker) repairTowns(ctx context.Context) (all []DamagedTown, err error) {
	for _, d := range c.report.Damaged {
		if !c.repairable(d) {
			continue
		}
		seq, err := c.repairTown(ctx, &d)
		if errors.Is(err, commitlog.ErrLostRace) {
			continue // the town has moved on
		}
		if err != nil {
			return all, fmt.Errorf("%w: town %q cannot be put back: %w", commitlog.ErrLogUnavailable,
				d.Town, err)
		}
		all = append(all, d)
		if err := c.alertRepaired(ctx, &d, seq); err != nil {
			return all, fmt.Errorf("%w: the alert about town %q, which was put back: %w",
				commitlog.ErrLogUnavailable, d.Town, err)
		}
	}
	return all, nil
}

// repairRecord returns the record that puts a town back to an earlier record of it. Restores of repair does
// not count.
func repairRecord(townID string, good *machine.Town, repair machine.Repair) *machine.Record {
	repair.Restores = good.Seq
	return &machine.Record{Kind: machine.KindRepair, TownID: townID, Repair: &repair}
}

// repairTown appends the town's last readable record again, and returns its log sequence.
func (c *worldChecker) repairTown(ctx context.Context, d *DamagedTown) (uint64, error) {
	gaps := d.gaps
	if !d.stateIntact {
		gaps = []machine.Gap{{After: d.lastGood.Seq}}
	}
	rec := repairRecord(d.Town, d.lastGood, machine.Repair{Lost: d.Lost, Gaps: gaps})
	msg, err := records.Encode(rec, d.Subject, d.lastGood)
	if err != nil {
		return 0, err
	}
	return c.log.Commit(ctx, msg, d.guard)
}

func (c *worldChecker) alertRepaired(ctx context.Context, d *DamagedTown, seq uint64) error {
	loss := "are not the engine's: no commit is lost"
	if d.LosesCommit {
		loss = "are lost"
	}
	alert := alerts.TownMended.AlertSince(alerts.About{TownID: d.Town}, c.now(), "{restored}", fmt.Sprint(d.Restores),
		"{day}", fmt.Sprint(d.Day), "{sequence}", fmt.Sprint(seq), "{loss}", loss)
	raised := alerts.New(c.js, alerts.Config{
		Log:      sidestream.Log{World: c.world, Identity: commitlog.Identity(c.log.Stream.CachedInfo().Config)},
		Replicas: c.log.Stream.CachedInfo().Config.Replicas, Logger: c.options.Logger, Now: c.now,
	})
	err := raised.RaiseStored(ctx, alert)
	if err != nil { // the first try may have made the stream
		err = raised.RaiseStored(ctx, alert)
	}
	return err
}
