package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

const (
	lookback     = 10_000          // begin so many messages before the log's end
	maxProjected = 10_000          // projected records that are remembered
	window       = 1024            // rows that are taken at a time
	interval     = time.Second     // between two looks
	lagHigh      = 5 * time.Second // above it PROJECTOR_LAG_HIGH is raised
)

// Project raises alerts about the invalid events that others append, until ctx is done: before
// anybody reads their runs (RunEvents v2.0.1, section 5.3; docs/adr/0024). An append projects its
// events in the turn of its run. Project finds the appended rows of the index that no turn has
// projected: an earlier server has died, or an append got no answer. It retries errors for ever.
func (s *Store) Project(ctx context.Context) {
	s.projects.Store(true)
	for late := false; ; {
		late = s.look(ctx, late)
		if backoff.Sleep(ctx, interval) != nil {
			return
		}
	}
}

// look projects the rows that wait, and reports whether projections are late afterwards. If they
// were not late before, it raises PROJECTOR_LAG_HIGH.
func (s *Store) look(ctx context.Context, before bool) (late bool) {
	if err := s.projectRows(ctx); err != nil && ctx.Err() == nil {
		s.config.Logger.Warn("appended events cannot be read for projections; will try again",
			"error", err)
	}
	lag := s.ProjectorLag()
	if late = lag > lagHigh; late && !before {
		alert := runevents.NewAlert(runevents.ProjectorLagHigh, &runevents.Record{},
			fmt.Sprintf("projections are %v behind, more than %v", lag, lagHigh))
		alert.Since = runevents.Timestamp(s.config.Now().Add(-lag))
		s.config.Alert("", alert)
	}
	return late
}

// projectRows projects the rows that wait. It begins a little before the log's end.
func (s *Store) projectRows(ctx context.Context) error {
	if s.began.Load() == nil {
		end, err := s.index.Sync(ctx)
		if err != nil {
			return err
		}
		s.position.Store(end - min(end, lookback))
		s.began.Store(new(s.config.Now()))
	}
	for end := s.index.Position(); ; {
		rows := s.index.Appended(s.position.Load(), window)
		for i := range rows {
			if err := s.projectRow(ctx, &rows[i]); err != nil {
				return err
			}
			s.position.Store(rows[i].Seq)
		}
		if len(rows) == 0 {
			s.position.Store(max(s.position.Load(), end))
			return nil
		}
	}
}

// projectRow projects the run of a row, as far as the index has it, unless the row is projected.
// It skips a run that is damaged.
func (s *Store) projectRow(ctx context.Context, row *index.Row) error {
	if s.isProjected(row) {
		return nil
	}
	msg, err := s.log.Store.At(ctx, row.Seq)
	if err != nil || msg == nil { // expired meanwhile
		return err
	}
	err = s.readRun(ctx, s.newKnownRun(msg.Header.Get(wire.RunIDHeader)))
	if errors.Is(err, ErrRunDamaged) {
		return nil
	}
	return err
}

func (s *Store) isProjected(row *index.Row) bool {
	_, projected := s.projected.Get(row.Seq)
	return projected
}

// raise raises alerts about a run, once Project was called. It raises none if the log does not keep
// the whole run, since they would mislead.
func (s *Store) raise(run *knownRun, alerts ...runevents.Alert) {
	if run.cut || !s.projects.Load() {
		return
	}
	for _, alert := range alerts {
		s.config.Alert(run.token, alert)
	}
}

// skips reports whether records of a run skip a runSeq, and raises an alert about it. The run is then
// read again from its beginning. A gap that the log has too is natural (Execution Semantics v1,
// section 1.5, rule 1).
func (s *Store) skips(run *knownRun, records []runevents.Record) bool {
	if len(records) == 0 || !runevents.DetectNonContiguous(run.last, records[0].RunSeq) {
		return false
	}
	s.raise(run, runevents.NewAlert(runevents.NonContiguousFetch, &records[0], fmt.Sprintf(
		"runSeq %d came when the watermark was %d; the run is read again", records[0].RunSeq,
		run.last)))
	return true
}

// ProjectorLag returns how long the oldest event that waits has been persisted, or has waited for
// this server; 0 if none waits. At most 1 s is normal (Execution Semantics v1, section 1.4).
func (s *Store) ProjectorLag() time.Duration {
	rows := s.waiting()
	if len(rows) == 0 {
		return 0
	}
	since := rows[0].At
	if began := *s.began.Load(); since.Before(began) {
		since = began
	}
	return max(s.config.Now().Sub(since), 0)
}

// ProjectorBehind counts the indexed records of appended events that are not projected, up to
// window.
func (s *Store) ProjectorBehind() uint64 { return uint64(len(s.waiting())) }

// waiting returns the first rows of appended events that are not projected.
func (s *Store) waiting() []index.Row {
	if s.began.Load() == nil {
		return nil
	}
	rows := s.index.Appended(s.position.Load(), window)
	return slices.DeleteFunc(rows, func(row index.Row) bool { return s.isProjected(&row) })
}
