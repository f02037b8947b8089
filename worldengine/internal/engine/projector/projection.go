package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/runs"
)

// Projection is the state of a run after its first records in the log. It is for one goroutine at a time.
type Projection struct {
	RunID string
	State *runlog.State
	// Town is the token of the run's town; "" while the run has no events.
	Town string
	// Guard is the log sequence of the last message on the run's own subject, and Stored the number of
	// messages there, or more, since some may have expired.
	Guard  uint64
	Stored int64

	lastRecord uint64 // the log sequence of the last record in the state
	lastEvent  int64  // the runSeq of the last event in the state
	truncated  bool   // the log does not keep some of the run's events
	// source is the key of the postponed alert of the run; "" if none is postponed.
	source string
}

// NewProjection returns the projection of a run without records.
func (p *Projector) NewProjection(runID string) *Projection {
	return &Projection{RunID: runID, State: runlog.NewState(runID, p.config.Appends)}
}

// Follow adds the records of a run that its projection lacks, once the index has followed the log. If they
// skip a runSeq, Follow projects the run again from its beginning. The error is runs.ErrRunDamaged if a
// record cannot be read or is another run's.
func (p *Projector) Follow(ctx context.Context, run *Projection) error {
	if _, err := p.config.Index.CatchUp(ctx); err != nil {
		return err
	}
	found, _ := p.config.Index.Run(run.RunID, run.lastRecord)
	continued := run.lastEvent > 0
	for i := range found.Rows {
		row := &found.Rows[i]
		rec, at, err := p.config.Runs.Record(ctx, row)
		if errors.Is(err, runs.ErrUnknownRun) { // expired
			run.truncated = true
			continue
		}
		if err == nil && continued && p.skips(run, rec.Run.Records(at)) {
			*run = *p.NewProjection(run.RunID)
			return p.Follow(ctx, run)
		}
		if err == nil {
			err = p.Add(run, rec, row.Seq, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Add adds the next record of a run, at a sequence of the log, and raises the alerts about it. If the record
// is of another run, it returns runs.ErrRunDamaged.
func (p *Projector) Add(run *Projection, rec *machine.Record, seq uint64, persistedAt time.Time) error {
	run.lastRecord, run.Town = seq, layout.TokenOf(rec.TownID)
	spec := rec.Kind.Spec()
	if spec.Subject == machine.RunSubject {
		run.Guard, run.Stored = seq, run.Stored+1
		if !spec.Foreign {
			run.State.SetClosing(rec.Closing)
		}
	}
	records := rec.Run.Records(persistedAt)
	if len(records) > 0 {
		// If it is the first one that is known, the index has forgotten those before it.
		run.truncated = run.truncated || run.lastEvent == 0 && records[0].RunSeq > 1
		run.lastEvent = records[len(records)-1].RunSeq
	}
	alerts, err := run.State.Add(!spec.Foreign, records...)
	if err != nil {
		return fmt.Errorf("%w: log sequence %d: %w", runs.ErrRunDamaged, seq, err)
	}
	if p.running.Load() && seq > p.position.Load() {
		p.projected.Add(seq, struct{}{})
	}
	p.raise(run, seq, alerts...)
	return nil
}

// skips reports whether records of a run skip a runSeq, and raises an alert about it. A gap that the log has
// too is natural (Execution Semantics v1, section 1.5, rule 1).
func (p *Projector) skips(run *Projection, records []runevents.Record) bool {
	if len(records) == 0 || !runevents.DetectNonContiguous(run.lastEvent, records[0].RunSeq) {
		return false
	}
	p.raise(run, 0, alerts.RunReread.EventAlert(&records[0], "{runSeq}", fmt.Sprint(records[0].RunSeq),
		"{watermark}", fmt.Sprint(run.lastEvent)))
	return true
}

// raise raises alerts about a run while Run is called. It raises none if the log does not keep the whole
// run, since such alerts would mislead. If the rate of alerts postpones the alert of an INCONSISTENT run,
// Run raises it later, for the row at a sequence.
func (p *Projector) raise(run *Projection, seq uint64, alerts ...runevents.Alert) {
	if run.truncated || !p.running.Load() {
		return
	}
	for i := range alerts {
		alert := &alerts[i]
		if p.config.Alert(run.Town, *alert) || alert.Code != runevents.InvalidTransition {
			continue
		}
		if run.source == "" {
			run.source = run.Town + " " + alert.AppendedBy
			p.postponed.add(postponedAlert{seq, run.source})
		}
	}
}
