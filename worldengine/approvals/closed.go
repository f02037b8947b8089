package approvals

import (
	"context"
	"errors"
	"strconv"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

// Bounds of the search for proposals that wait no longer.
const (
	atOnce     = 64  // rows of the index
	mostRead   = 512 // records of one page
	mostBehind = 256 // rows of a town, to find the run or the decision of a proposal
)

// past reads the proposals that wait no longer.
type past struct {
	*Reader
	towns map[string]*known // by token; nil of a damaged town
}

// Closed returns up to limit rows of proposals that wait no longer: of one town, or with "" of all
// towns for which of is true. Those that were asked about last come first. It returns fewer if their
// proposals have more than so many bytes.
func (r *Reader) Closed(
	ctx context.Context, townID, after string, limit, bytes int, of func(townID string) bool,
) (page Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := r.Asked(ctx); err != nil { // which waits for the index
		return page, err
	}
	token := ""
	if townID != "" {
		token = wire.TownToken(townID)
	}
	before, _ := strconv.ParseUint(after, 10, 64) // from the newest if it is no place
	p := past{r, map[string]*known{}}
	for read := 0; ; {
		rows := r.Past(token, before, atOnce)
		if len(rows) == 0 {
			return page, nil
		}
		for i := range rows {
			if len(page.Rows) == limit || read == mostRead || bytes < 0 {
				page.Next = strconv.FormatUint(before, 10)
				return page, nil
			}
			before = rows[i].Seq
			if rows[i].Kind != commitlog.KindAsked {
				continue
			}
			read++
			row, err := p.row(ctx, &rows[i], of)
			if err != nil {
				return page, err
			}
			if row != nil {
				page.Rows = append(page.Rows, row)
				bytes -= len(row.Proposal)
			}
		}
	}
}

// row returns the row of a proposal by the record that asked about it, nil if it still waits, the log
// does not keep it, or it is none of the towns that are asked about.
func (p *past) row(
	ctx context.Context, at *index.Row, of func(townID string) bool,
) (*Row, error) {
	rec, err := p.record(ctx, at)
	if rec == nil || err != nil || !of(rec.TownID) {
		return nil, err
	}
	k, err := p.town(ctx, at.Town)
	if k == nil || err != nil {
		return nil, err
	}
	a := rec.Approvals[len(rec.Approvals)-1] // as it was asked for
	status := approval.Stale
	now := k.approvals.Entry(a.HandoffID, a.HandoffHash)
	if now != nil && now.At.Equal(a.At) {
		if status = now.Status(k.hash, p.Now()); status.IsOpen() {
			return nil, nil
		}
	} else {
		now = nil // dropped, or asked about again
	}
	row := &Row{TownID: rec.TownID, HandoffID: a.HandoffID, HandoffHash: a.HandoffHash,
		At: runevents.Timestamp(a.At), Expires: runevents.Timestamp(a.Expires),
		RunID: rec.Run.RunID, Expected: []Change{}}
	if _, err := p.propose(row, a.Handoff); err != nil {
		return nil, nil // damage, which fsck reports
	}
	var decision *approval.Decision
	if now != nil {
		decision = now.Decision
	}
	if decision == nil {
		if decision, err = p.decision(ctx, at, a.HandoffHash); err != nil {
			return nil, err
		}
	}
	switch {
	case status == approval.Used:
		row.RunID = now.RunID
	case decision != nil && !decision.Approved:
		status = approval.Denied
	case decision != nil && now == nil:
		if runID, err := p.accepted(ctx, at, &a); err != nil {
			return nil, err
		} else if runID != "" {
			status, row.RunID = approval.Used, runID
		}
	}
	if row.Status = string(status); decision != nil {
		row.DecidedBy, row.DecidedAt = decision.ActorID, runevents.Timestamp(decision.At)
		row.Reason = decision.Reason
	}
	return row, nil
}

// town returns the present approvals of a town, nil if it is damaged.
func (p *past) town(ctx context.Context, token string) (*known, error) {
	if k, found := p.towns[token]; found {
		return k, nil
	}
	_, k, err := p.load(ctx, token)
	if errors.Is(err, commitlog.ErrTownDamaged) {
		k, err = nil, nil
	}
	p.towns[token] = k
	return k, err
}

// record reads the record of a row, nil if the log does not keep it or it is damaged.
func (r *Reader) record(ctx context.Context, at *index.Row) (*commitlog.Record, error) {
	rec, _, err := r.Log.RecordAt(ctx, at.Seq, wire.LogSubject(r.Log.World, at.Town))
	if errors.Is(err, commitlog.ErrGone) || errors.Is(err, commitlog.ErrDamaged) ||
		err == nil && (rec.Run == nil || len(rec.Approvals) == 0) {
		return nil, nil
	}
	return rec, err
}

// decision returns the decision about a handoff that a row asked about, nil if there was none.
func (p *past) decision(
	ctx context.Context, asked *index.Row, handoffHash string,
) (decision *approval.Decision, err error) {
	for _, at := range p.Past(asked.Town, 0, mostBehind) {
		if at.Seq < asked.Seq {
			break
		}
		if at.Kind != commitlog.KindDecided {
			continue
		}
		rec, err := p.record(ctx, &at)
		if err != nil {
			return nil, err
		}
		if rec == nil {
			continue
		}
		// the oldest behind the question is about this one, and later ones about another asking
		if a := rec.Approvals.Decided(rec.Run.RunID); a != nil && a.HandoffHash == handoffHash {
			decision = a.Decision
		}
	}
	return decision, nil
}

// accepted returns the run that carried an approved handoff out, "" if none did.
func (p *past) accepted(
	ctx context.Context, asked *index.Row, a *approval.Asked,
) (runID string, err error) {
	h, err := handoff.Parse(a.Handoff, schemas.Limits{Bytes: len(a.Handoff) + 1})
	if err != nil {
		return "", nil
	}
	seq, found := p.Accepted(asked.Town, h.IdempotencyKey)
	if !found || seq < asked.Seq {
		return "", nil
	}
	rec, _, err := p.Log.RecordAt(ctx, seq)
	if err != nil || rec.Run == nil {
		return "", err
	}
	return rec.Run.RunID, nil
}

// askedRuns returns the runs that asked about the handoffs with hashes in a town, by the hashes.
func (r *Reader) askedRuns(
	ctx context.Context, token string, hashes map[string]bool,
) (map[string]string, error) {
	runs := map[string]string{}
	for _, at := range r.Past(token, 0, mostBehind) {
		if len(runs) == len(hashes) {
			break
		}
		if at.Kind != commitlog.KindAsked {
			continue
		}
		rec, err := r.record(ctx, &at)
		if err != nil {
			return nil, err
		}
		if rec == nil {
			continue
		}
		hash := rec.Approvals[len(rec.Approvals)-1].HandoffHash
		if hashes[hash] && runs[hash] == "" {
			runs[hash] = rec.Run.RunID
		}
	}
	return runs, nil
}
