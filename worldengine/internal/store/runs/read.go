package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// PageBytes bounds the bytes of a page's events or rows; a page has at least one. A message of that
// size fits into NATS with its default settings.
const PageBytes = 1_000_000

// Events returns up to limit events of a run that have a runSeq above afterSeq and come after the
// log sequence afterMark; fewer if they have more than PageBytes. LastEventSeq shows whether there
// are more. The error is ErrUnknownRun if the log keeps no events of the run, or not the first of
// these events; ErrRunDamaged if one of them cannot be read; index.ErrBehind if the index has not
// followed the log.
func (r *Reader) Events(
	ctx context.Context, runID string, afterSeq int64, afterMark uint64, limit int,
) (page messages.Events, err error) {
	run, err := r.find(ctx, runID)
	if err != nil {
		return page, err
	}
	room := PageBytes
	page.Events, page.LastEventSeq = []jsontext.Value{}, run.LastSeq()
	for i := range run.Rows {
		row := &run.Rows[i]
		if int64(row.LastRunSeq) <= afterSeq || row.Seq <= afterMark {
			continue
		}
		rec, at, err := r.Record(ctx, row)
		if err != nil {
			return messages.Events{}, err
		}
		if i == 0 && afterMark == 0 && rec.Run.FirstSeq > afterSeq+1 {
			return messages.Events{}, ErrUnknownRun // the index has forgotten the first ones
		}
		bodies, err := rec.Run.RecordsJSON(at)
		if err != nil {
			return messages.Events{}, fmt.Errorf("%w: log sequence %d: %w", ErrRunDamaged, row.Seq,
				err)
		}
		for i, body := range bodies {
			if rec.Run.FirstSeq+int64(i) <= afterSeq {
				continue
			}
			room -= len(body)
			if len(page.Events) == limit || room < 0 && len(page.Events) > 0 {
				return page, nil
			}
			page.Events, page.Mark = append(page.Events, body), row.Seq
		}
	}
	return page, nil
}

// Get returns the state of a run, projected from all of its events. metadata.consistency shows
// whether some events are invalid; operators get one alert for each of these. It fails as Events
// does.
func (r *Reader) Get(ctx context.Context, runID string) (runevents.Snapshot, error) {
	snapshot, _, err := r.read(ctx, runID, math.MaxInt64)
	return snapshot, err
}

// SnapshotAt returns the state of a run after its events up to a runSeq, or nil if it has none of
// them. It fails as Events does.
func (r *Reader) SnapshotAt(
	ctx context.Context, runID string, seq int64,
) (*runevents.Snapshot, error) {
	snapshot, records, err := r.read(ctx, runID, seq)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return &snapshot, nil
}

// View returns a run as a row of a list. It fails as Get does.
func (r *Reader) View(ctx context.Context, runID string) (run messages.Run, err error) {
	snapshot, records, err := r.read(ctx, runID, math.MaxInt64)
	run.RunRow = rowOf(snapshot, records)
	r.setAnswerTime(&run.RunRow)
	return run, err
}

// setAnswerTime sets the time that an ended run took to the time of its answer, if that is known.
func (r *Reader) setAnswerTime(row *messages.RunRow) {
	if r.AnswerTime == nil || row.TookMs == nil {
		return
	}
	if took, known := r.AnswerTime(row.RunID); known {
		row.TookMs = new(took.Milliseconds())
	}
}

// read returns the state of a run after its events up to a runSeq, and these events.
func (r *Reader) read(
	ctx context.Context, runID string, last int64,
) (snapshot runevents.Snapshot, records []runevents.Record, err error) {
	run, err := r.find(ctx, runID)
	if err == nil {
		records, err = r.records(ctx, &run)
	}
	if err != nil {
		return snapshot, nil, err
	}
	records = slices.DeleteFunc(records, func(rec runevents.Record) bool { return rec.RunSeq > last })
	snapshot, err = r.project(runID, records)
	return snapshot, records, err
}

// timingOf returns the times of a run: its first event says when the run arrived, and the event
// that ends the run has the time just before its answer was stored.
func timingOf(records []runevents.Record) messages.Timing {
	if len(records) == 0 {
		return messages.Timing{}
	}
	timing := messages.Timing{ArrivedAt: records[0].EmittedAt}
	arrived, err := time.Parse(time.RFC3339, timing.ArrivedAt)
	for i := range records {
		at, errEnd := time.Parse(time.RFC3339, records[i].PersistedAt)
		if records[i].EventType.EndsRun() && err == nil && errEnd == nil {
			timing.TookMs = new(max(0, at.Sub(arrived).Milliseconds()))
		}
	}
	return timing
}

// records returns the events of a run.
func (r *Reader) records(
	ctx context.Context, run *index.Run,
) (records []runevents.Record, err error) {
	for i := range run.Rows {
		rec, at, err := r.Record(ctx, &run.Rows[i])
		if err != nil {
			return nil, err
		}
		records = append(records, rec.Run.Records(at)...)
	}
	if len(records) > 0 && records[0].RunSeq > 1 {
		return nil, ErrUnknownRun // the index has forgotten the first ones
	}
	return records, nil
}

func (r *Reader) project(
	runID string, records []runevents.Record,
) (runevents.Snapshot, error) {
	snapshot, alerts, err := runevents.Project(runID, records)
	if err != nil {
		return runevents.Snapshot{}, fmt.Errorf("runs: run %s: %w", runID, err)
	}
	for _, alert := range alerts {
		r.raise(alert)
	}
	return snapshot.View(), nil
}

// Record reads the record of a row, which has events of a run, and the record's persistedAt. It
// returns ErrUnknownRun if the log no longer keeps the record, since the run's other events alone
// would mislead, and ErrRunDamaged if the record cannot be read.
func (r *Reader) Record(
	ctx context.Context, row *index.RowView,
) (rec *machine.Record, at time.Time, err error) {
	var subjects []string
	switch world := r.log.World; row.Kind.Spec().Subject {
	case machine.RunSubject: // they expire by their time
	case machine.SignalSubject:
		subjects = []string{layout.SignalSubject(world)}
	case machine.RefusedSubject:
		subjects = []string{layout.RefusedSubject(world, row.Town),
			layout.RefusedSubject(world, layout.UnknownTownToken)}
	default:
		subjects = []string{layout.LogSubject(world, row.Town)}
	}
	rec, msg, err := r.log.RecordAt(ctx, row.Seq, subjects...)
	switch {
	case errors.Is(err, commitlog.ErrGone):
		return nil, at, ErrUnknownRun
	case errors.Is(err, commitlog.ErrDamaged):
		return nil, at, fmt.Errorf("%w: %w", ErrRunDamaged, err)
	case err != nil:
		return nil, at, err
	case rec.Run == nil:
		return nil, at, fmt.Errorf("%w: log sequence %d: a record of kind %q without a run",
			ErrRunDamaged, row.Seq, rec.Kind)
	}
	return rec, commitlog.PersistedAt(msg.Header, msg.Time), nil
}

// find returns a run from the index. Unless the run has ended, the index follows the log first.
func (r *Reader) find(ctx context.Context, runID string) (index.Run, error) {
	run, found := r.index.Run(runID, 0)
	if found && run.Status().Terminal() {
		return run, nil
	}
	if _, err := r.index.CatchUp(ctx); err != nil {
		return index.Run{}, err
	}
	if run, found = r.index.Run(runID, 0); !found {
		return index.Run{}, ErrUnknownRun
	}
	return run, nil
}

// Town returns the token of a run's town. It fails as Events does.
func (r *Reader) Town(ctx context.Context, runID string) (string, error) {
	run, err := r.find(ctx, runID)
	return run.Town, err
}

// EndedAt returns the log sequence of the record that ended a run; 0 if the run continues, or if
// another producer than the engine ended it. It fails as Events does.
func (r *Reader) EndedAt(ctx context.Context, runID string) (uint64, error) {
	run, err := r.find(ctx, runID)
	if err != nil {
		return 0, err
	}
	for i := range run.Rows {
		if row := &run.Rows[i]; row.Flags&index.Ended != 0 && !row.Kind.Spec().Foreign {
			return row.Seq, nil
		}
	}
	return 0, nil
}
