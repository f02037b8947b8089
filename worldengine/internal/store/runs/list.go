package runs

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// rowOf returns the row of a run. If another producer than the engine began the run, the row may
// lack members, and has neither type nor result: the run's events may claim anything.
func rowOf(run runevents.Snapshot, records []runevents.Record) messages.RunRow {
	started := machine.ReadStarted(&run)
	row := messages.RunRow{Snapshot: run, Timing: timingOf(records), TownID: started.TownID,
		ActorID: started.ActorID, Command: started.Command}
	if run.Metadata.AppendedBy == "" {
		ended := machine.ReadEnded(&run)
		row.Type = cmp.Or(started.Type, started.Signal)
		row.ResultStatus, row.ReasonCode = ended.Status, ended.ReasonCode
	}
	return row
}

// Bounds of the search for one page: runs that are read, and runs that are read at once to find an
// id.
const (
	maxRunsRead = 2000
	maxBatch    = 200
)

// List returns up to limit runs that come after the given place: 0 for the first page, then the
// Next of the page before. It returns fewer if they have more than PageBytes, or if the search
// reads too many runs. Runs that the log does not keep whole, or that are damaged, are left out. A
// run that alone has more than PageBytes lacks members.
func (r *Reader) List(ctx context.Context, filter index.Filter, after uint64, limit int) (messages.Runs, error) {
	mark, err := r.index.CatchUp(ctx)
	if err != nil {
		return messages.Runs{}, err
	}
	page, room := messages.Runs{Runs: make([]messages.RunRow, 0, min(limit, 50)), Next: after, Mark: mark}, PageBytes
	for read := 0; len(page.Runs) < limit && read < r.maxRunsRead; {
		batch := limit - len(page.Runs)
		if filter.ID != "" {
			batch = min(maxBatch, r.maxRunsRead-read)
		}
		found := r.index.Runs(filter, page.Next, batch)
		for i := range found.Runs {
			row, err := r.row(ctx, &found.Runs[i])
			if err != nil {
				return messages.Runs{}, err
			}
			if row != nil && hasID(row, filter.ID) {
				row, size, err := fitRow(row)
				if err != nil {
					return messages.Runs{}, err
				}
				full := len(page.Runs) == limit
				if room -= size + 1; full || room < 0 && len(page.Runs) > 0 {
					page.Searched += i
					return page, nil
				}
				page.Runs = append(page.Runs, *row)
			}
			page.Next, page.SearchedTo = found.Cursors[i],
				runevents.Timestamp(found.Runs[i].Rows[0].At)
		}
		read += len(found.Runs)
		page.Searched += found.Searched
		if !found.To.IsZero() {
			page.SearchedTo = runevents.Timestamp(found.To)
		}
		if page.Next = found.Next; page.Next == 0 {
			break
		}
	}
	return page, nil
}

// fitRow returns a row and the size of its JSON. If the row is larger than a page, fitRow leaves out
// its steps and artifacts and, if that is not enough, all members that producers chose.
func fitRow(row *messages.RunRow) (*messages.RunRow, int, error) {
	fits := *row
	for left := 0; ; left++ {
		data, err := json.Marshal(&fits)
		if err != nil || len(data) <= PageBytes || left == 2 {
			return &fits, len(data), err
		}
		fits.Steps, fits.Artifacts = []runevents.StepSnapshot{}, []runevents.Artifact{}
		fits.Metadata.IgnoredEvents = nil
		if left == 1 {
			fits = messages.RunRow{Timing: row.Timing, Snapshot: runevents.Snapshot{
				RunID: row.RunID, Status: row.Status, LastEventSeq: row.LastEventSeq,
				Steps: fits.Steps, Artifacts: fits.Artifacts, Metadata: runevents.Metadata{
					AppendedBy: row.Metadata.AppendedBy, Consistency: row.Metadata.Consistency,
				},
			}}
		}
	}
}

// hasID reports whether an id of a run begins with a text: see index.Filter.
func hasID(row *messages.RunRow, text string) bool {
	if text == "" {
		return true
	}
	for _, id := range []string{row.RunID, row.Metadata.PlanID,
		machine.ReadStarted(&row.Snapshot).HandoffID, machine.ReadEnded(&row.Snapshot).ResultID} {
		_, hash, _ := strings.Cut(id, "_")
		if strings.HasPrefix(id, text) || strings.HasPrefix(hash, text) {
			return true
		}
	}
	return false
}

// row returns the row of a run, or nil for a run that is left out of lists.
func (r *Reader) row(ctx context.Context, run *index.Run) (*messages.RunRow, error) {
	records, err := r.records(ctx, run)
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) || len(records) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	snapshot, err := r.project(records[0].RunID, records)
	if err != nil {
		return nil, err
	}
	row := rowOf(snapshot, records)
	r.setAnswerTime(&row)
	return &row, nil
}

// Mark returns the mark up to which a list would be complete now. It fails as List does.
func (r *Reader) Mark(ctx context.Context) (uint64, error) { return r.index.CatchUp(ctx) }
