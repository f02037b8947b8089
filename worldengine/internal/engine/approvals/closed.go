package approvals

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Bounds of the search for proposals that wait no longer.
const (
	rowBatch    = 64  // rows of the index
	maxRecords  = 512 // records of one page
	maxTownRows = 256 // rows of a town, to find the run or the decision of a proposal
)

// Closed returns up to limit rows of proposals that wait no longer: of one town, or with "" of all
// towns for which includes is true. The newest question comes first. Closed returns fewer rows if their
// JSON takes more than the given bytes, but at least one.
func (r *Reader) Closed(
	ctx context.Context, townID, after string, limit, bytes int, includes func(townID string) bool,
) (page messages.Approvals, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := r.Index.CatchUp(ctx); err != nil {
		return page, err
	}
	token := ""
	if townID != "" {
		token = wire.TownToken(townID)
	}
	before, _ := strconv.ParseUint(after, 10, 64) // if after is no place, from the newest
	c := pageReader{r, map[string]*pageTown{}}
	for read := 0; ; {
		rows := r.Index.Approvals(token, before, rowBatch)
		if len(rows) == 0 {
			page.Next = ""
			return page, nil
		}
		for i := range rows {
			page.Next = strconv.FormatUint(before, 10)
			if len(page.Approvals) == limit || read == maxRecords {
				return page, nil
			}
			before = rows[i].Seq
			if rows[i].Kind != machine.KindAsked {
				continue
			}
			read++
			row, err := c.closedRow(ctx, &rows[i], includes)
			if err != nil {
				return messages.Approvals{}, err
			}
			if row == nil {
				continue
			}
			data, err := json.Marshal(row)
			if err != nil {
				return messages.Approvals{}, err
			}
			if bytes -= len(data); bytes < 0 && len(page.Approvals) > 0 {
				return page, nil
			}
			page.Approvals = append(page.Approvals, row)
		}
	}
}

// closedRow makes the row of a proposal from the record that asked about it. It returns nil if the
// proposal still waits, the log does not keep the record, or includes is false for the town.
func (r *pageReader) closedRow(
	ctx context.Context, at *index.RowView, includes func(townID string) bool,
) (*messages.Approval, error) {
	rec, err := r.record(ctx, at)
	if rec == nil || err != nil || len(rec.Approvals) == 0 || !includes(rec.TownID) {
		return nil, err
	}
	town, err := r.town(ctx, at.Town)
	if town == nil || err != nil {
		return nil, err
	}
	a := rec.Approvals[len(rec.Approvals)-1] // as it was asked for
	row, h, err := newRow(rec.TownID, &a)
	if err != nil {
		return nil, nil // damage, which fsck reports
	}
	row.RunID = rec.Run.RunID
	status, decision := a.Status(town.State.Hash, r.Now()), (*approval.Decision)(nil)
	now := town.Approvals.Find(a.HandoffID, a.HandoffHash)
	if now != nil && !now.At.Equal(a.At) {
		now = nil // asked about again
	}
	if now != nil {
		status, decision = now.Status(town.State.Hash, r.Now()), now.Decision
	}
	switch {
	case status.IsOpen() && now != nil:
		return nil, nil
	case status.IsOpen():
		status = approval.Stale
	}
	if decision == nil {
		if decision, err = r.decision(ctx, at, &a); err != nil {
			return nil, err
		}
	}
	switch {
	case status == approval.Used:
		row.RunID = now.RunID
	case decision != nil && !decision.Approved:
		status = approval.Denied
	case decision != nil && now == nil:
		runID, err := r.accepted(ctx, at, h.IdempotencyKey, a.HandoffHash)
		if err != nil {
			return nil, err
		}
		if runID != "" {
			status, row.RunID = approval.Used, runID
		}
	}
	row.Status = string(status)
	setDecision(row, decision)
	return row, nil
}

// decision returns the decision about the question of a row, nil if there was none. Other decisions
// about the handoff answer other questions.
func (r *Reader) decision(
	ctx context.Context, at *index.RowView, asked *approval.Request,
) (decision *approval.Decision, err error) {
	rows := r.Index.ApprovalsAfter(at.Town, at.Seq, maxTownRows)
	err = r.visit(ctx, rows, machine.KindDecided, func(rec *machine.Record) bool {
		a := rec.Approvals.DecidedBy(rec.Run.RunID)
		if a != nil && a.HandoffHash == asked.HandoffHash && a.At.Equal(asked.At) {
			decision = a.Decision
		}
		return decision == nil
	})
	return decision, err
}

// accepted returns the run that carried the approved handoff with a hash out, "" if none did.
// Another handoff may have used its key.
func (r *Reader) accepted(
	ctx context.Context, asked *index.RowView, key, handoffHash string,
) (runID string, err error) {
	seq, found := r.Index.Accepted(asked.Town, key)
	if !found || seq < asked.Seq {
		return "", nil
	}
	rec, err := r.record(ctx, &index.RowView{Seq: seq, Town: asked.Town})
	if rec == nil || err != nil {
		return "", err
	}
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		return "", nil // damage, which fsck reports
	}
	if encoded, err := h.MarshalWire(); err != nil || approval.Hash(encoded) != handoffHash {
		return "", err
	}
	return rec.Run.RunID, nil
}

// visit visits the records of rows that are of a kind, until visit returns false.
func (r *Reader) visit(
	ctx context.Context, rows []index.RowView, kind machine.Kind, visit func(*machine.Record) bool,
) error {
	for i := range rows {
		if rows[i].Kind != kind {
			continue
		}
		rec, err := r.record(ctx, &rows[i])
		if err != nil {
			return err
		}
		if rec != nil && !visit(rec) {
			return nil
		}
	}
	return nil
}

// record reads the record of a row, nil if the log does not keep it or it is damaged.
func (r *Reader) record(ctx context.Context, at *index.RowView) (*machine.Record, error) {
	rec, _, err := r.Log.RecordAt(ctx, at.Seq, layout.LogSubject(r.Log.World, at.Town))
	if errors.Is(err, commitlog.ErrGone) || errors.Is(err, commitlog.ErrDamaged) ||
		err == nil && rec.Run == nil {
		return nil, nil
	}
	return rec, err
}
