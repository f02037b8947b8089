package worldsettings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// ErrHistoryNeeded means that a lower HistoryPerTown would discard records that the log must keep: of handoffs
// that failed at the present epoch of their town, or the first ones of a run.
var ErrHistoryNeeded = errors.New("worldsettings: " + HistorySetting + " cannot be lowered so far")

// checkRequiredHistory returns ErrHistoryNeeded if a town or a run needs more than the history of the plan.
// subjects are all of the log, with their numbers of messages. A server learns of a lower history
// within a second; meanwhile it may store into the part that the plan leaves free.
func (p *Plan) checkRequiredHistory(ctx context.Context, subjects map[string]uint64) error {
	history := p.Settings.HistoryPerTown
	runs, towns := layout.RunSubject(p.log.World, ""), layout.LogSubject(p.log.World, "")
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		messages := int64(subjects[subject])
		runID, ofRun := strings.CutPrefix(subject, runs)
		token, ofTown := strings.CutPrefix(subject, towns)
		switch {
		case ofRun && messages > history:
			return fmt.Errorf("%w: the run %s has %d records; they expire after 30 days",
				ErrHistoryNeeded, runID, messages)
		case ofTown && records.CheckHistoryRoom(history, records.RequiredHistory{SinceFailed: uint32(messages)}, records.TownPriorityHandoff) != nil:
			needs, err := readRequiredHistory(ctx, p.log.Stream, subject)
			if err == nil && records.CheckHistoryRoom(history, needs, records.TownPriorityHandoff) != nil {
				err = fmt.Errorf("%w: the town %s needs its last %d records, and a tenth more: %d handoffs "+
					"have failed since its epoch is %d. Put it with a later day first", ErrHistoryNeeded,
					token, needs.Length(), needs.FailedHandoffs, needs.Epoch)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// readRequiredHistory reads the required history of the town with a log subject.
func readRequiredHistory(ctx context.Context, stream jetstream.Stream, subject string) (records.RequiredHistory, error) {
	type record struct {
		epoch           int64
		failed, pending bool
	}
	var kept []record
	whole, err := commitlog.ScanSubject(ctx, stream, subject, 1, true,
		func(msg *jetstream.RawStreamMsg) error {
			status, _, _ := strings.Cut(msg.Header.Get(layout.ResultHeader), " ")
			kept = append(kept, record{commitlog.EpochOf(msg.Header),
				status == string(handoff.Failed) && records.KindOf(msg.Header).Spec().ConsumesKey,
				msg.Header.Get(layout.PendingHeader) != ""})
			return nil
		})
	if err != nil || len(kept) == 0 {
		return records.RequiredHistory{}, err
	}
	if !whole {
		return records.RequiredHistory{}, fmt.Errorf("%w: %s", commitlog.ErrDamaged, subject)
	}
	needs := records.RequiredHistory{Epoch: kept[len(kept)-1].epoch}
	for _, rec := range kept {
		needs.Count(rec.failed && rec.epoch == needs.Epoch, rec.pending)
	}
	return needs, nil
}
