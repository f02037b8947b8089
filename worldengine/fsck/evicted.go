package fsck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// NATS discards the oldest commits of a town whose history is full. A follower that is behind by
// more than a history is long never reads them. The only trace in the log is the guard of the
// oldest commit that is kept: it names the commit before. Where no run event names that one, either
// it was a put, or its events are lost.

// recentEvicted is how many evicted messages of a town are remembered until its oldest kept commit
// is read.
const recentEvicted = 8

// evictions are the discarded commits that run events name.
type evictions struct {
	named map[string][]uint64 // by the town's token: the last log sequences
	from  uint64              // the first log sequence that an event names
	full  int                 // how many towns have a history that has discarded commits
	// unnamed are tokens of towns, by the last commit that their history discarded, where no event
	// has named that yet.
	unnamed map[uint64]string
	// cut are the oldest kept messages that follow another one, by the subject of their town.
	cut map[string]uint64
}

// start takes note of where the run events begin.
func (e *evictions) start(ctx context.Context, events *eventCheck) error {
	e.named, e.unnamed, e.cut = map[string][]uint64{}, map[uint64]string{}, map[string]uint64{}
	if !events.checked() {
		return nil
	}
	first, err := events.cursor.peek(ctx, 0)
	if first != nil && first.Placed {
		e.from = first.At.Seq
	}
	return err
}

// observe takes note of an event whose log message is gone.
func (e *evictions) observe(got *commitlog.Message) {
	subject := got.Subject()
	token := lastToken(subject[:strings.LastIndexByte(subject, '.')])
	if e.unnamed[got.At.Seq] == token {
		delete(e.unnamed, got.At.Seq)
	}
	seqs := e.named[token]
	if n := len(seqs); n > 0 && seqs[n-1] == got.At.Seq {
		if refusedRun(got) {
			e.named[token] = seqs[:n-1]
		}
		return
	}
	if len(seqs) == recentEvicted {
		seqs = slices.Delete(seqs, 0, 1)
	}
	e.named[token] = append(seqs, got.At.Seq)
}

// refusedRun reports whether an event ends a run that changed no town.
func refusedRun(got *commitlog.Message) bool {
	return runevents.EventType(got.Headers().Get(wire.EventTypeHeader)) == runevents.RunCompleted &&
		!ofCommit(got)
}

// oldest checks the oldest kept message of a town.
func (e *evictions) oldest(m *commitlog.Message) {
	token := lastToken(m.Subject())
	before, err := strconv.ParseUint(m.Headers().Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	named := slices.Contains(e.named[token], before)
	delete(e.named, token)
	if err != nil || before == 0 {
		return
	}
	e.full++
	e.cut[m.Subject()] = m.Seq
	if named || e.from == 0 || before < e.from { // expired, or before the events that are kept
		return
	}
	e.unnamed[before] = token
}

// findBeheaded reports the towns whose history begins behind a message that no limit has discarded:
// the log keeps fewer messages of them than the least that it ever kept of a full history, and they
// do not begin within what was restored.
func (c *worldCheck) findBeheaded(ctx context.Context) error {
	least := commitlog.LeastHistory(c.log.CachedInfo().Config)
	restored := commitlog.RestoredTo(c.log.CachedInfo().Config)
	maps.DeleteFunc(c.evicted.cut, func(subject string, first uint64) bool {
		return least < 1 || c.towns[subject].read >= uint64(least) || first <= restored
	})
	if len(c.evicted.cut) == 0 {
		return nil
	}
	kept, err := commitlog.SubjectsOf(ctx, c.log, wire.LogSubject(c.world, "*"))
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(c.evicted.cut)) {
		if n := kept[subject]; n < uint64(least) {
			c.find(Finding{
				Stream: wire.LogStream(c.world), Sequence: c.evicted.cut[subject], Subject: subject,
				Town: townOfToken(lastToken(subject)),
				What: "the log has lost the beginning of the town's history",
				Want: "a message before it",
				Got:  fmt.Sprintf("none, and %d of the %d that the history keeps", n, least),
			})
		}
	}
	return nil
}

// noteEvicted notes what the histories do not let a check know.
func (c *worldCheck) noteEvicted() {
	var towns []string
	for _, seq := range slices.Sorted(maps.Keys(c.evicted.unnamed)) {
		towns = append(towns, townOfToken(c.evicted.unnamed[seq]))
	}
	if len(towns) == 0 {
		return
	}
	c.note(fmt.Sprintf("%d of %d towns whose history is full: no run event names the last commit "+
		"that the history discarded. It was a put, or its receipt and events are lost, because a "+
		"follower was behind by more commits than the history keeps (--history-per-town) and never "+
		"read it; the log does not have which. Towns: %s",
		len(towns), c.evicted.full, shortened(strings.Join(towns, ", "))))
}
