package fsck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// guardOf returns the sequence that guarded a message of the log, 0 for none.
func guardOf(m jetstream.Msg) uint64 {
	guard, _ := strconv.ParseUint(m.Headers().Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	return guard
}

// noteCut records the oldest kept message of a town, if that follows another one.
func (c *worldCheck) noteCut(m *commitlog.Message) {
	if guardOf(m) > 0 {
		c.cut[m.Subject()] = m.Seq
	}
}

// findBeheaded reports the towns whose history begins behind a message that no limit has discarded:
// the log keeps fewer messages of them than its least full history, and they do not begin within a
// restored backup.
func (c *worldCheck) findBeheaded(ctx context.Context) error {
	least := commitlog.LeastHistory(c.log.CachedInfo().Config)
	restored := commitlog.RestoredTo(c.log.CachedInfo().Config)
	maps.DeleteFunc(c.cut, func(subject string, first uint64) bool {
		return least < 1 || c.towns[subject].read >= uint64(least) || first <= restored
	})
	if len(c.cut) == 0 {
		return nil
	}
	kept, err := commitlog.SubjectsOf(ctx, c.log, wire.LogSubject(c.world, "*"))
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(c.cut)) {
		if n := kept[subject]; n < uint64(least) {
			c.find(Finding{
				Stream: wire.LogStream(c.world), Sequence: c.cut[subject], Subject: subject,
				Town: townOfToken(lastToken(subject)),
				What: "the log has lost the beginning of the town's history",
				Want: "a message before it",
				Got:  fmt.Sprintf("none, and %d of the %d that the history keeps", n, least),
			})
		}
	}
	return nil
}
