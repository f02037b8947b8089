package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/wire"
)

const (
	lookback     = 10_000           // begin so many messages before the end of the log at New
	maxProjected = 2 * lookback     // projected records that are remembered
	window       = 1024             // rows that are taken at a time
	interval     = time.Second      // between two looks, if there is something to look at
	idle         = 10 * time.Second // between two looks, if there is nothing
	lagHigh      = 5 * time.Second  // above it PROJECTOR_LAG_HIGH is raised
)

// Project raises alerts about the invalid events that others append, even if nobody reads their
// runs (RunEvents v2.0.1, section 5.3; docs/adr/0024). An append projects its events in the turn of
// its run. Project finds the appended rows of the index that no turn has projected, because an
// earlier server died or an append got no answer. It goes on after errors, until ctx is done.
func (s *Store) Project(ctx context.Context) {
	s.projects.Store(true)
	p := projector{Store: s, began: s.config.Now()}
	for ctx.Err() == nil {
		position := s.index.Position()
		p.look(ctx)
		if backoff.Sleep(ctx, interval) == nil && s.waits.Load() == nil && s.debts.none() {
			_ = s.index.AwaitNews(ctx, position, idle)
		}
	}
}

// projector looks for appended rows that no turn has projected.
type projector struct {
	*Store
	began time.Time
	late  bool // at the last look
}

// waiting is the rows that wait to be projected, after an error.
type waiting struct {
	since time.Time // persistedAt of the first row or, if later, the start of Project
	rows  uint64
}

// look projects the rows that wait. It raises PROJECTOR_LAG_HIGH once each time the lag becomes too
// high.
func (p *projector) look(ctx context.Context) {
	if err := p.projectRows(ctx); err != nil && ctx.Err() == nil {
		p.config.Logger.Warn("appended events cannot be read for projections; will try again",
			"error", err)
	}
	if err := p.settle(ctx); err != nil && ctx.Err() == nil {
		p.config.Logger.Warn("runs cannot be read for alerts about them; will try again", "error", err)
	}
	lag, _ := p.ProjectorLag()
	if lag > lagHigh && !p.late {
		alert := runevents.NewAlert(runevents.ProjectorLagHigh, &runevents.Record{},
			fmt.Sprintf("projections are %v behind, more than %v", lag, lagHigh))
		alert.Since = runevents.Timestamp(p.config.Now().Add(-lag))
		p.config.Alert("", alert)
	}
	p.late = lag > lagHigh
}

// projectRows projects the rows that wait.
func (p *projector) projectRows(ctx context.Context) error {
	for end := p.index.Position(); ; {
		rows := p.index.Appended(p.position.Load(), window)
		for i := range rows {
			if err := p.projectRow(ctx, &rows[i]); err != nil {
				first := &waiting{since: rows[i].At, rows: uint64(len(rows) - i)}
				if first.since.Before(p.began) {
					first.since = p.began
				}
				p.waits.Store(first)
				return err
			}
			p.position.Store(rows[i].Seq)
		}
		if len(rows) == 0 {
			p.waits.Store(nil)
			p.position.Store(max(p.position.Load(), end))
			return nil
		}
	}
}

// projectRow projects the run of a row, as far as the index has it, unless the row is projected. It
// skips the other rows of a run that is damaged.
func (p *projector) projectRow(ctx context.Context, row *index.Row) error {
	if _, projected := p.projected.Get(row.Seq); projected {
		return nil
	}
	msg, err := p.log.Store.At(ctx, row.Seq)
	if err != nil || msg == nil { // expired meanwhile
		return err
	}
	runID := wire.RunIDOf(msg.Header)
	err = p.readRun(ctx, p.newKnownRun(runID))
	if !errors.Is(err, ErrRunDamaged) {
		return err
	}
	rest, _ := p.index.Run(runID, row.Seq)
	for i := range rest.Rows {
		p.projected.Add(rest.Rows[i].Seq, struct{}{})
	}
	return nil
}

// ProjectorLag returns how long the oldest row that waits to be projected has waited, since its
// persistedAt or, if later, since the start of Project. behind counts the rows that wait, up to
// window. At most 1 s is normal (Execution Semantics v1, section 1.4).
func (s *Store) ProjectorLag() (lag time.Duration, behind uint64) {
	waits := s.waits.Load()
	if waits == nil {
		return 0, 0
	}
	return max(s.config.Now().Sub(waits.since), 0), waits.rows
}

// raise raises alerts about a run if Project was called. It raises none if the log does not keep
// the whole run, since such alerts would mislead. If the rate of alerts postpones the alert of an
// INCONSISTENT run, the alert is owed for the row at a sequence.
func (s *Store) raise(run *knownRun, seq uint64, alerts ...runevents.Alert) {
	if run.cut || !s.projects.Load() {
		return
	}
	for i := range alerts {
		alert := &alerts[i]
		if s.config.Alert(run.token, *alert) || alert.Code != runevents.InvalidTransition {
			continue
		}
		if run.lane == "" {
			run.lane = run.token + " " + alert.AppendedBy
			s.debts.add(owed{seq, run.lane})
		}
	}
}

// skips reports whether records of a run skip a runSeq, and raises an alert about it. The caller
// then reads the run again from its beginning. A gap that the log has too is natural (Execution
// Semantics v1, section 1.5, rule 1).
func (s *Store) skips(run *knownRun, records []runevents.Record) bool {
	if len(records) == 0 || !runevents.DetectNonContiguous(run.last, records[0].RunSeq) {
		return false
	}
	s.raise(run, 0, runevents.NewAlert(runevents.NonContiguousFetch, &records[0], fmt.Sprintf(
		"runSeq %d came when the watermark was %d; the run is read again", records[0].RunSeq,
		run.last)))
	return true
}
