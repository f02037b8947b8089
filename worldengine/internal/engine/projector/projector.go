// Package projector projects the runs that other producers than the engine append events to, and raises
// alerts about their invalid events, even if nobody reads the runs (RunEvents v2.0.1, section 5.3;
// docs/adr/0024-the-projector-looks-at-what-others-append.md).
//
// The append authority projects a run in the turn in which it appends to it. Projector.Run finds the appended
// rows of the index that no turn has projected, because an earlier server died or an append got no answer.
package projector

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
)

const (
	lookback            = 10_000           // New looks so many messages before the end of the log
	maxProjected        = 2 * lookback     // projected records that are remembered
	batchSize           = 1024             // rows that are read at a time
	projectInterval     = time.Second      // between two looks, if there is something to look at
	idleProjectInterval = 10 * time.Second // between two looks, if there is nothing
	maxLagAge           = 5 * time.Second  // above it PROJECTOR_LAG_HIGH is raised
)

// Config configures a Projector. Every member must be set.
type Config struct {
	Log   *records.Log
	Index *index.Index
	Runs  *runs.Reader
	// Appends is the policy for events of other producers.
	Appends runlog.AppendPolicy
	// Alert is called with each alert that a projection finds, and the token of its town. It must be safe
	// for concurrent use. It returns false if the alert is to be raised again later.
	Alert func(townToken string, alert runevents.Alert) bool
	// Now is the clock that persistedAt is compared with.
	Now    func() time.Time
	Logger *slog.Logger
}

// Projector projects runs. It is safe for concurrent use, except for Run, which is called once.
type Projector struct {
	config Config

	startSeq  uint64                        // the log sequence up to which New took the rows for projected
	position  atomic.Uint64                 // the log sequence up to which all rows are projected
	projected *recent.Map[uint64, struct{}] // later records that are projected, by log sequence
	backlog   atomic.Pointer[backlog]       // nil if nothing waits to be projected
	postponed postponedAlerts

	running  atomic.Bool // Run was called
	start    time.Time   // of Run
	lagging  bool        // at the last look of Run
	recalled bool        // the alerts that an earlier server postponed are in postponed
}

// New returns the Projector of a world. It raises alerts once Run is called.
func New(config Config) *Projector {
	done, total := config.Index.Progress()
	end := max(done, total)
	p := &Projector{config: config, projected: recent.NewMap[uint64, struct{}](maxProjected)}
	p.startSeq = end - min(end, lookback)
	p.position.Store(p.startSeq)
	return p
}

// Run projects the rows that no append has projected. It continues after errors, until ctx is done.
func (p *Projector) Run(ctx context.Context) {
	p.enable()
	for ctx.Err() == nil {
		position := p.config.Index.Position()
		p.projectBacklog(ctx)
		if backoff.Sleep(ctx, projectInterval) == nil && p.backlog.Load() == nil && p.postponed.isEmpty() {
			_ = p.config.Index.AwaitNews(ctx, position, idleProjectInterval)
		}
	}
}

// enable lets projections raise alerts.
func (p *Projector) enable() {
	p.start = p.config.Now()
	p.running.Store(true)
}

// backlog is the rows that wait to be projected, after an error.
type backlog struct {
	since time.Time // persistedAt of the first row or, if later, the start of Run
	rows  uint64
}

// projectBacklog projects the rows that wait. It raises PROJECTOR_LAG_HIGH once each time the lag becomes too
// high.
func (p *Projector) projectBacklog(ctx context.Context) {
	if err := p.projectRows(ctx); err != nil && ctx.Err() == nil {
		p.config.Logger.Warn("appended events cannot be read for projections; will try again",
			"error", err)
	}
	if err := p.raisePostponed(ctx); err != nil && ctx.Err() == nil {
		p.config.Logger.Warn("runs cannot be read for alerts about them; will try again", "error", err)
	}
	lag, _ := p.Lag()
	if lag > maxLagAge && !p.lagging {
		p.config.Alert("", alerts.ProjectorLag.AlertSince(alerts.About{}, p.config.Now().Add(-lag),
			"{lag}", lag.String(), "{max}", maxLagAge.String()))
	}
	p.lagging = lag > maxLagAge
}

// projectRows projects the rows that wait. The position rises only behind a row that is projected, so that
// after an error the same row is next.
func (p *Projector) projectRows(ctx context.Context) error {
	for end := p.config.Index.Position(); ; {
		rows := p.config.Index.Appended(p.position.Load(), batchSize)
		for i := range rows {
			if err := p.projectRow(ctx, &rows[i]); err != nil {
				first := &backlog{since: rows[i].At, rows: uint64(len(rows) - i)}
				if first.since.Before(p.start) {
					first.since = p.start
				}
				p.backlog.Store(first)
				return err
			}
			p.position.Store(rows[i].Seq)
		}
		if len(rows) == 0 {
			p.backlog.Store(nil)
			p.position.Store(max(p.position.Load(), end))
			return nil
		}
	}
}

// projectRow projects the run of a row, as far as the index has it, unless the row is projected. It
// skips the other rows of a run that is damaged.
func (p *Projector) projectRow(ctx context.Context, row *index.RowView) error {
	if _, projected := p.projected.Get(row.Seq); projected {
		return nil
	}
	msg, err := p.config.Log.Store.At(ctx, row.Seq)
	if err != nil || msg == nil { // expired meanwhile
		return err
	}
	runID := layout.RunIDOf(msg.Header)
	err = p.Follow(ctx, p.NewProjection(runID))
	if !errors.Is(err, runs.ErrRunDamaged) {
		return err
	}
	rest, _ := p.config.Index.Run(runID, row.Seq)
	for i := range rest.Rows {
		p.projected.Add(rest.Rows[i].Seq, struct{}{})
	}
	return nil
}

// Lag returns how long the oldest row that waits to be projected has waited, since its persistedAt or, if
// later, since the start of Run. behind counts the rows that wait, up to batchSize. At most 1 s is normal
// (Execution Semantics v1, section 1.4).
func (p *Projector) Lag() (lag time.Duration, behind uint64) {
	waits := p.backlog.Load()
	if waits == nil {
		return 0, 0
	}
	return max(p.config.Now().Sub(waits.since), 0), waits.rows
}
