package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// ErrHistoryNeeded: a lower HistoryPerTown would discard records that the log must keep: of handoffs
// that failed at the present epoch of their town, or the first ones of a run.
var ErrHistoryNeeded = errors.New("worldengine: " + HistorySetting + " cannot be lowered so far")

// checkNeeds returns ErrHistoryNeeded if a town or a run needs more than the history of the plan.
// subjects are all of the log, with their numbers of messages. A server learns of a lower history
// within a second; meanwhile it may store into the part that the plan leaves free.
func (p *Plan) checkNeeds(ctx context.Context, subjects map[string]uint64) error {
	log := &Log{Keeps: p.Settings.HistoryPerTown}
	runs, towns := wire.RunSubject(p.log.World, ""), wire.LogSubject(p.log.World, "")
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		messages := int64(subjects[subject])
		runID, ofRun := strings.CutPrefix(subject, runs)
		token, ofTown := strings.CutPrefix(subject, towns)
		switch {
		case ofRun && messages > log.Keeps:
			return fmt.Errorf("%w: the run %s has %d records; they expire after 30 days",
				ErrHistoryNeeded, runID, messages)
		case ofTown && log.CheckTown(Needs{FailedFor: uint32(messages)}, TownHandoff) != nil:
			needs, err := readNeeds(ctx, p.log.Stream, subject)
			if err == nil && log.CheckTown(needs, TownHandoff) != nil {
				err = fmt.Errorf("%w: the town %s needs its last %d records, and a tenth more: %d handoffs "+
					"have failed since its epoch is %d. Put it with a later day first", ErrHistoryNeeded,
					token, needs.Records(), needs.Failed, needs.Epoch)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// readNeeds reads the needs of the town with a log subject.
func readNeeds(ctx context.Context, stream jetstream.Stream, subject string) (Needs, error) {
	type record struct {
		epoch           int64
		failed, pending bool
	}
	var records []record
	r := newReading(stream, jetstream.ConsumerConfig{HeadersOnly: true, FilterSubject: subject})
	for msg := range r.messages(ctx, fetchMessages) {
		epoch, _ := strconv.ParseInt(msg.Header.Get(wire.EpochHeader), 10, 64)
		status, _, _ := strings.Cut(msg.Header.Get(wire.ResultHeader), " ")
		records = append(records, record{epoch, status == string(handoff.Failed) &&
			Kind(msg.Header.Get(wire.KindHeader)) == KindHandoff, msg.Header.Get(wire.PendingHeader) != ""})
	}
	if err := r.broken(r.err); err != nil || len(records) == 0 {
		return Needs{}, err
	}
	if !r.whole {
		return Needs{}, fmt.Errorf("%w: %s", ErrDamaged, subject)
	}
	needs := Needs{Epoch: records[len(records)-1].epoch}
	for _, rec := range records {
		needs.Count(rec.failed && rec.epoch == needs.Epoch, rec.pending)
	}
	return needs, nil
}
