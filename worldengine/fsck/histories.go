package fsck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// NATS does not deliver a message that was changed on its disk, but counts it. Within a history the
// guard of the next message shows the loss; at the end, no delivered message does.

// Unreadable is a history, of a town or of the world's pauses, whose last message NATS counts but
// does not deliver.
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
	counted, err = commitlog.SubjectsOf(ctx, log.Stream, wire.LogSubject(log.World, "*"),
		wire.ControlSubject(log.World))
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

// checkHistories reports the histories that are unreadable, and the towns that have lost the
// beginning of their history. The first message of such a town names an earlier one, which no limit
// has discarded: the history is shorter than the least full history. Histories that begin within a
// restored backup do not count.
//
// It also notes the towns with a message that NATS cannot read from its files: NATS counts more
// messages of the town than it delivers. When that message leaves a full history, nats-server
// 2.15.2 fails: it stores nothing more, and truncates the file there at its next start.
func (c *worldCheck) checkHistories(ctx context.Context) error {
	unreadable, counted, err := FindUnreadable(ctx, c.log, func(subject string) uint64 {
		if h := c.seen.histories[subject]; h != nil {
			return h.read
		}
		return 0
	})
	if err != nil {
		return err
	}
	for _, u := range unreadable {
		const what = "changed on the disk of NATS, which does not deliver it"
		c.find(Finding{
			Stream: wire.LogStream(c.world), Sequence: u.Sequence, Subject: u.Subject, Town: u.Town,
			What: "the last message was " + what,
		})
		if u.Subject != wire.ControlSubject(c.world) {
			c.damage(u.Subject).lose(commitlog.LostMessage{Sequence: u.Sequence,
				Reason: "it was " + what}, true)
		}
	}
	config := c.log.Stream.CachedInfo().Config
	least, restored := uint64(max(commitlog.LeastHistory(config), 0)), commitlog.RestoredTo(config)
	for _, subject := range slices.Sorted(maps.Keys(c.seen.histories)) {
		h, n := c.seen.histories[subject], counted[subject]
		if h.ofTown && h.cut && max(h.read, n) < least && h.first > restored {
			c.find(Finding{
				Stream: wire.LogStream(c.world), Sequence: h.first, Subject: subject,
				Town: townOf(subject),
				What: "the log has lost the beginning of the town's history",
				Want: "a message before it",
				Got:  fmt.Sprintf("none, and %d of the %d that the history keeps", n, least),
			})
		}
		// A restored log does not have the message.
		noted := h.onDisk > 0 && n > h.read
		if noted && len(c.report.Notes) < c.options.MaxFindings {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("town %q: log sequence %d stays in "+
				"the files of NATS, which cannot read it. When NATS discards that message, it loses "+
				"the messages of the log behind it. Before the history of the town is full "+
				"(--history-per-town), move the world by handoffctl backup and handoffd restore, "+
				"which leave that message behind", townOf(subject), h.onDisk))
		}
	}
	return nil
}

// townOf returns the town of a history's subject, or "" if its token is a hash.
func townOf(subject string) string {
	token := wire.LoggedTown(subject)
	id, err := wire.PercentDecode(token)
	if err != nil || strings.HasPrefix(token, "=") {
		return ""
	}
	return id
}
